//! The effect of a restore on each pool, from ARM's current pools and the snapshot of the machines.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::assignment::PausedBy;
use model::ids::{Family, PoolId};
use model::level::{Level, SurplusPolicy};
use model::redact::Printable;
use model::view::Snapshot;
use serde_json::Value;

use super::image::{Image, Members, members};
use crate::cli::observe::named;
use crate::cli::pauses::describe_pause;

/// The current documents of the selected pools that exist, as ARM sent them.
pub(super) type Documents = BTreeMap<PoolId, Value>;

/// The effect of a restore on a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Finding {
    /// The controller may write it, and it has the members of its pre-image.
    InSync,
    /// The controller may not write it, but it has the members of its pre-image.
    Same,
    /// It will be written.
    Change {
        /// Members to add.
        add: Vec<String>,
        /// Members to remove.
        remove: Vec<String>,
    },
    /// It keeps its members: its pre-image is empty, but its Services have endpoints.
    KeptMembers,
    /// No node in its pre-image hosts an endpoint.
    Unserved,
    /// The pool or a Service of it is paused; the text describes the pauses.
    Paused(String),
    /// It does not exist.
    Gone,
    /// It is not the own pool of a managed Service. For example, the pools of the cluster as a whole follow its nodes.
    Foreign,
    /// It is a managed Service's pool, but its members are not written, for this reason.
    NotManageable(String),
}

/// The facts from which findings follow.
#[derive(Clone, Copy)]
pub(super) struct Evidence<'a> {
    pub(super) documents: &'a Documents,
    pub(super) snapshot: &'a Snapshot,
    /// Whether the operator has named the pools, so that they are written even if they are paused.
    pub(super) named: bool,
}

impl Finding {
    /// Returns the finding about a pool.
    pub(super) fn of(image: &Image, evidence: &Evidence<'_>) -> Finding {
        let Some(document) = evidence.documents.get(&image.id) else { return Finding::Gone };
        let has_current_members = image.has_current_members(document);
        let pauses = if evidence.named { Vec::new() } else { pauses(&image.id, evidence.snapshot) };
        let level = match level(image, evidence.snapshot) {
            Ok(level)
                if has_current_members && pauses.is_empty() && level.keeps != SurplusPolicy::KeepAll =>
            {
                return Finding::InSync;
            }
            Ok(_) | Err(_) if has_current_members => return Finding::Same,
            Ok(level) => level,
            Err(finding) => return finding,
        };
        let (pinned, now) = match (&image.members, members(document)) {
            (Ok(pinned), Ok(now)) => (pinned, now),
            (Err(reason), _) => return unusable(reason),
            (Ok(_), Err(reason)) => return Finding::NotManageable(reason),
        };
        if !pauses.is_empty() {
            return Finding::Paused(pauses.join("; "));
        }
        if level.keeps == SurplusPolicy::KeepAll {
            return Finding::Unserved;
        }
        let present: BTreeSet<IpAddr> = now.keys().copied().collect();
        let label = |ip: &IpAddr| match pinned.get(ip).or_else(|| now.get(ip)) {
            Some(name) => format!("{ip} ({name})"),
            None => ip.to_string(),
        };
        let add: Vec<String> = level.missing(&present).map(label).collect();
        let remove: Vec<String> = level.surplus(&present).map(label).collect();
        if add.is_empty() && remove.is_empty() {
            Finding::KeptMembers
        } else {
            Finding::Change { add, remove }
        }
    }

    /// Returns whether the controller may write the pool, and whether it is as in the snapshot already.
    fn position(&self) -> (bool, bool) {
        match self {
            Finding::InSync => (true, true),
            Finding::Change { .. } => (true, false),
            Finding::Same => (false, true),
            Finding::KeptMembers
            | Finding::Unserved
            | Finding::Paused(_)
            | Finding::Gone
            | Finding::Foreign
            | Finding::NotManageable(_) => (false, false),
        }
    }

    /// Returns whether the machines restore the pool, or keep it restored.
    pub(super) fn is_ours(&self) -> bool {
        let (ours, _) = self.position();
        ours
    }

    /// Returns whether the pool will be written.
    pub(super) fn is_change(&self) -> bool {
        self.position() == (true, false)
    }

    /// Returns whether the pool is as in the snapshot already.
    pub(super) fn is_in_sync(&self) -> bool {
        let (_, in_sync) = self.position();
        in_sync
    }

    /// Returns the finding as a text.
    pub(super) fn text(&self) -> String {
        match self {
            Finding::InSync | Finding::Same => "is in sync".to_owned(),
            Finding::Change { add, remove } => {
                let part = |what: &str, members: &Vec<String>| {
                    (!members.is_empty()).then(|| format!("{what} {}", named(members.clone())))
                };
                let parts = [part("add", add), part("remove", remove)];
                parts.into_iter().flatten().collect::<Vec<String>>().join("; ")
            }
            Finding::KeptMembers => {
                "left as it is: it has no members in the snapshot, and its Services have endpoints; pass --allow-empty \
                 to empty it"
                    .to_owned()
            }
            Finding::Unserved => {
                "left as it is: no node that it has in the snapshot hosts an endpoint; pass --allow-unserved to write \
                 it anyway"
                    .to_owned()
            }
            Finding::Paused(pauses) => {
                format!("left as it is: {pauses}; name it with --pool to write it anyway")
            }
            Finding::Gone => "no longer exists".to_owned(),
            Finding::Foreign => "left as it is: it does not belong to a managed Service".to_owned(),
            Finding::NotManageable(reason) => format!("left as it is: {reason}"),
        }
    }
}

/// Returns the desired members of a pool, or the finding about a pool that the machines do not write.
fn level<'a>(image: &Image, snapshot: &'a Snapshot) -> Result<&'a Level, Finding> {
    let refused = || snapshot.services.values().flat_map(|service| &service.not_manageable);
    if let Some((_, reason)) = refused().find(|(id, _)| *id == image.id) {
        return Err(Finding::NotManageable(reason.to_string()));
    }
    match (snapshot.pools.get(&image.id), &image.members) {
        (None, _) => Err(Finding::Foreign),
        (Some(_), Err(reason)) => Err(unusable(reason)),
        (Some(view), Ok(_)) if view.paused.contains(&PausedBy::NotInRestore) || !fits(image, view.family) => {
            let reason = "its members in the snapshot are of the other IP family";
            Err(Finding::NotManageable(reason.to_owned()))
        }
        (Some(view), Ok(_)) => Ok(&view.level),
    }
}

fn unusable(reason: &str) -> Finding {
    Finding::NotManageable(format!("its snapshot cannot be restored: {reason}"))
}

fn fits(image: &Image, family: Family) -> bool {
    let mut ips = image.members.iter().flat_map(|members| members.keys());
    ips.all(|ip| match family {
        Family::V4 => ip.is_ipv4(),
        Family::V6 => ip.is_ipv6(),
    })
}

/// Returns texts about the pauses of a pool, of its Services, and by their annotations.
fn pauses(id: &PoolId, snapshot: &Snapshot) -> Vec<String> {
    let policy = snapshot.policy.as_ref().and_then(|view| view.policy.as_deref());
    let pool = policy.and_then(|policy| policy.pools.get(id));
    let mut all: Vec<String> =
        pool.map(|pause| format!("paused {}", describe_pause(pause))).into_iter().collect();
    for key in snapshot.pools.get(id).into_iter().flat_map(|pool| pool.services.values()) {
        if let Some(pause) = policy.and_then(|policy| policy.services.get(key)) {
            all.push(format!("its Service {key} is paused {}", describe_pause(pause)));
        }
        if snapshot.services.get(key).is_some_and(|service| service.paused) {
            all.push(format!("its Service {key} has the annotation azure-backend-pool-controller.io/pause"));
        }
    }
    all
}

/// The number of nodes with endpoints of a pool, and the number of those that are its members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Served {
    /// Nodes with endpoints.
    of: usize,
    /// Those that are members now.
    now: usize,
    /// Those that are members in the pre-image.
    then: usize,
}

impl Served {
    /// Counts the nodes; `None` if there are no such nodes, or the members are not known.
    fn of(image: &Image, evidence: &Evidence<'_>) -> Option<Served> {
        let desired = evidence.snapshot.pools.get(&image.id)?.overruled.as_ref()?;
        let (then, now) = (image.members.as_ref().ok()?, members(evidence.documents.get(&image.id)?).ok()?);
        let count = |members: &Members| desired.iter().filter(|ip| members.contains_key(ip)).count();
        let served = Served { of: desired.len(), now: count(&now), then: count(then) };
        (served.of > 0).then_some(served)
    }

    /// Returns a text for a pool with this finding, if there is something to report.
    fn text(self, finding: &Finding) -> Option<String> {
        let Served { of, now, then } = self;
        let forecast = |would: &str| {
            let warning = if then < now || then == 0 { "warning: " } else { "" };
            let end = if then == 0 { format!(", and no traffic {would} be served") } else { String::new() };
            format!("{warning}of the {of} nodes with endpoints it has {now}, and {would} have {then}{end}")
        };
        match finding {
            Finding::Change { .. } => Some(forecast("will")),
            Finding::KeptMembers | Finding::Unserved | Finding::Paused(_) => Some(forecast("would")),
            Finding::InSync | Finding::Same if now < of => {
                let end = if now == 0 { ", so no traffic is served" } else { "" };
                Some(format!("warning: of the {of} nodes with endpoints it has {now}{end}"))
            }
            Finding::InSync
            | Finding::Same
            | Finding::Gone
            | Finding::Foreign
            | Finding::NotManageable(_) => None,
        }
    }
}

/// Returns the plan as lines: each pool that is out of sync, its pauses, the number of its nodes with endpoints now and
/// after the restore, and the differences that are not restored.
pub(super) fn lines(images: &[Image], findings: &[Finding], evidence: &Evidence<'_>) -> Vec<Printable> {
    let in_sync = findings.iter().filter(|finding| finding.is_in_sync()).count();
    let changes = findings.iter().filter(|finding| finding.is_change()).count();
    let others = findings.len() - in_sync - changes;
    let mut all = vec![printable!(
        "{changes} pools would be written, {in_sync} are in sync, {others} are left as they are"
    )];
    all.extend(pause_lines(evidence.snapshot));
    for (image, finding) in images.iter().zip(findings) {
        let text = (!finding.is_in_sync()).then(|| finding.text());
        let served = Served::of(image, evidence).and_then(|served| served.text(finding));
        let found: Vec<String> = text.into_iter().chain(served).collect();
        let mut lines = Vec::new();
        if !found.is_empty() {
            lines.push(found.join("; "));
        }
        let paused = pauses(&image.id, evidence.snapshot);
        if !paused.is_empty() && !matches!(finding, Finding::Paused(_)) {
            lines.push(paused.join("; "));
        }
        let other_differences =
            evidence.documents.get(&image.id).map(|now| image.other_differences(now)).unwrap_or_default();
        lines.extend(other_differences.into_iter().map(|difference| format!("not restored: {difference}")));
        all.extend(lines.into_iter().map(|line| printable!("- {}: {line}", image.id)));
    }
    all
}

/// Returns lines about the pause of everything, and about unreadable pauses.
fn pause_lines(snapshot: &Snapshot) -> Vec<Printable> {
    let view = snapshot.policy.as_ref();
    let everything = view.and_then(|view| view.policy.as_ref()?.everything.as_ref());
    let everything = everything.map(|pause| printable!("everything is paused {}", describe_pause(pause)));
    let unreadable = view.into_iter().flat_map(|view| &view.unreadable).map(|(key, reason)| {
        printable!("warning: the key {key} of the controller's ConfigMap is not a readable pause: {reason}")
    });
    everything.into_iter().chain(unreadable).collect()
}
