//! What of a pool is told to people: each condition once when it begins, and once more in each term (D2, G5, E1).

use std::collections::{BTreeMap, BTreeSet};

use super::Out;
use super::pool::Refusal;
use crate::assignment::{Assignment, HeldReason};
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
    /// Why a removal is held back.
    held: Option<HeldReason>,
}

impl Told {
    /// The conditions of a pool that is refused for this, or has this assignment.
    pub(super) fn of(refused: Option<&Refusal>, said: Option<&Assignment>) -> Told {
        let sharing = said.filter(|said| said.services.len() > 1);
        Told {
            refused: refused.map(|refusal| refusal.reason.clone()),
            sharing: sharing.into_iter().flat_map(|said| said.services.keys()).cloned().collect(),
            held: said.and_then(|said| said.held.as_ref()).map(|held| held.reason),
        }
    }

    /// Reports the conditions that have begun since they were last told.
    pub(super) fn tell(
        &mut self,
        pool: &PoolId,
        refused: Option<&Refusal>,
        said: Option<&Assignment>,
        out: &mut Vec<Out>,
    ) {
        let before = std::mem::replace(self, Told::of(refused, said));
        if let Some(Refusal { reason, services }) = refused.filter(|_| self.refused != before.refused) {
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
        if let Some(held) = said.held.as_ref().filter(|_| self.held != before.held) {
            let what = What::Held { pool: pool.clone(), reason: held.reason, members: held.members.len() };
            out.push(report(&owners, what));
        }
    }
}

fn report(services: &BTreeMap<ServiceUid, ServiceKey>, what: What) -> Out {
    let subject = |(uid, key): (&ServiceUid, &ServiceKey)| {
        Subject::Service(ServiceRef { key: key.clone(), uid: uid.clone() })
    };
    Out::Report(Report { subjects: services.iter().map(subject).collect(), what })
}
