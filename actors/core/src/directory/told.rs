//! What of a pool is told to people: each condition once when it begins, and once more in each term and after a pause
//! (D2, G5, E1). While a pool is paused nothing of it is told, as where everything is only observed (G6).

use std::collections::{BTreeMap, BTreeSet};

use super::Out;
use super::pool::Unproven;
use crate::assignment::{Assignment, Held, HeldReason};
use crate::error::NotManageable;
use crate::ids::{PoolId, ServiceKey, ServiceUid};
use crate::report::{Report, ServiceRef, Subject, What};

/// The conditions of a pool, as they were last told.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Told {
    /// Why it is not manageable.
    refused: Option<NotManageable>,
    /// The Services that share it; none when there is only one.
    sharing: BTreeSet<ServiceUid>,
    /// Why a removal is held back, or would be if guards were enforced.
    held: Option<HeldReason>,
}

impl Told {
    /// The conditions of a pool that is refused for this, or has this assignment.
    pub(super) fn of(refused: Option<&Unproven>, said: Option<&Assignment>) -> Told {
        let (refused, said) = unpaused(refused, said);
        let sharing = said.filter(|said| said.services.len() > 1);
        Told {
            refused: refused.map(|refusal| refusal.reason.clone()),
            sharing: sharing.into_iter().flat_map(|said| said.services.keys()).cloned().collect(),
            held: said.and_then(told_held).map(|(held, _)| held.reason),
        }
    }

    /// Reports the conditions that have begun since they were last told.
    pub(super) fn tell(
        &mut self,
        pool: &PoolId,
        refused: Option<&Unproven>,
        said: Option<&Assignment>,
        out: &mut Vec<Out>,
    ) {
        let before = std::mem::replace(self, Told::of(refused, said));
        let (refused, said) = unpaused(refused, said);
        if let Some(Unproven { reason, services, paused: _ }) =
            refused.filter(|_| self.refused != before.refused)
        {
            let what = What::NotManageable { pool: pool.clone(), reason: reason.clone() };
            out.push(report(services, what));
        }
        let Some(said) = said else { return };
        let owners: BTreeMap<ServiceUid, ServiceKey> =
            said.services.iter().map(|(uid, share)| (uid.clone(), share.key.clone())).collect();
        if !self.sharing.is_empty() && self.sharing != before.sharing {
            let what = What::Shared { pool: pool.clone(), services: owners.values().cloned().collect() };
            out.push(report(&owners, what));
        }
        if let Some((held, enforced)) = told_held(said).filter(|_| self.held != before.held) {
            let (reason, members) = (held.reason, held.members.len());
            let what = What::Held { pool: pool.clone(), reason, members, enforced };
            out.push(report(&owners, what));
        }
    }
}

/// What is to be told at all: nothing of a pool that is paused.
fn unpaused<'a>(
    refused: Option<&'a Unproven>,
    said: Option<&'a Assignment>,
) -> (Option<&'a Unproven>, Option<&'a Assignment>) {
    (refused.filter(|refusal| !refusal.paused), said.filter(|said| !said.is_paused()))
}

/// The removal that is held back, or that would be and goes on, if that is to be told. What the mode forbids is as a
/// person wants it; they need not be told.
fn told_held(said: &Assignment) -> Option<(&Held, bool)> {
    let held = said.held.as_ref().filter(|held| held.reason != HeldReason::AddOnly);
    held.map(|held| (held, true)).or_else(|| said.would_hold.as_ref().map(|held| (held, false)))
}

fn report(services: &BTreeMap<ServiceUid, ServiceKey>, what: What) -> Out {
    let subject = |(uid, key): (&ServiceUid, &ServiceKey)| {
        Subject::Service(ServiceRef { key: key.clone(), uid: uid.clone() })
    };
    Out::Report(Report { subjects: services.iter().map(subject).collect(), what })
}
