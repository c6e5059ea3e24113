//! What restoring would do to each pool: what ARM has now, and what the machines make of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::assignment::PausedBy;
use model::ids::{Family, PoolId};
use model::level::{Keeps, Level};
use model::redact::Printable;
use model::view::Snapshot;
use serde_json::Value;

use super::image::{Image, Members, members};
use crate::cli::observe::named;
use crate::cli::pauses::words;

/// The documents of the wanted pools as ARM has them now; a pool that does not exist is not among them.
pub(super) type Documents = BTreeMap<PoolId, Value>;

/// What becomes of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Finding {
    /// It is ours to write, and has the members of its pre-image.
    InSync,
    /// It is not ours to write, and has the members of its pre-image.
    Same,
    /// It is to be written.
    Change {
        /// Members that come.
        add: Vec<String>,
        /// Members that go.
        remove: Vec<String>,
    },
    /// Its pre-image is empty, and its Services have endpoints.
    Kept,
    /// Its pre-image has none of the nodes that endpoints are on.
    Unserved,
    /// Operators have paused it by itself: how, since when, by whom and why.
    Paused(String),
    /// It does not exist.
    Gone,
    /// It is no managed Service's own pool: those of the cluster as a whole, for example, follow its nodes.
    Foreign,
    /// It is a managed Service's, and its members are not written: why.
    NotManageable(String),
}

/// What findings are judged by.
#[derive(Clone, Copy)]
pub(super) struct Grounds<'a> {
    pub(super) documents: &'a Documents,
    pub(super) snapshot: &'a Snapshot,
    /// Whether the operator has named the pools: those that are paused by themselves are written too then.
    pub(super) named: bool,
}

impl Finding {
    /// What is found of this pool.
    pub(super) fn of(image: &Image, grounds: &Grounds<'_>) -> Finding {
        let Some(document) = grounds.documents.get(&image.id) else { return Finding::Gone };
        let is_now = image.is_now(document);
        let pauses = if grounds.named { Vec::new() } else { pauses(&image.id, grounds.snapshot) };
        let level = match level(image, grounds.snapshot) {
            Ok(level) if is_now && pauses.is_empty() && level.keeps != Keeps::All => return Finding::InSync,
            Ok(_) | Err(_) if is_now => return Finding::Same,
            Ok(level) => level,
            Err(why) => return why,
        };
        let (pinned, now) = match (&image.members, members(document)) {
            (Ok(pinned), Ok(now)) => (pinned, now),
            (Err(why), _) => return unusable(why),
            (Ok(_), Err(why)) => return Finding::NotManageable(why),
        };
        if !pauses.is_empty() {
            return Finding::Paused(pauses.join("; "));
        }
        if level.keeps == Keeps::All {
            return Finding::Unserved;
        }
        let present: BTreeSet<IpAddr> = now.keys().copied().collect();
        let word = |ip: &IpAddr| match pinned.get(ip).or_else(|| now.get(ip)) {
            Some(name) => format!("{ip} ({name})"),
            None => ip.to_string(),
        };
        let add: Vec<String> = level.missing(&present).map(word).collect();
        let remove: Vec<String> = level.surplus(&present).map(word).collect();
        if add.is_empty() && remove.is_empty() { Finding::Kept } else { Finding::Change { add, remove } }
    }

    /// Whether it is ours to write, and whether it is as in the snapshot already.
    fn stands(&self) -> (bool, bool) {
        match self {
            Finding::InSync => (true, true),
            Finding::Change { .. } => (true, false),
            Finding::Same => (false, true),
            Finding::Kept
            | Finding::Unserved
            | Finding::Paused(_)
            | Finding::Gone
            | Finding::Foreign
            | Finding::NotManageable(_) => (false, false),
        }
    }

    /// Whether the machines are to bring it into sync, or to keep it so.
    pub(super) fn is_work(&self) -> bool {
        let (ours, _) = self.stands();
        ours
    }

    /// Whether the pool is to be written.
    pub(super) fn is_change(&self) -> bool {
        self.stands() == (true, false)
    }

    /// Whether it is as in the snapshot already.
    pub(super) fn is_in_sync(&self) -> bool {
        let (_, in_sync) = self.stands();
        in_sync
    }

    /// In words.
    pub(super) fn words(&self) -> String {
        match self {
            Finding::InSync | Finding::Same => "is in sync".to_owned(),
            Finding::Change { add, remove } => {
                let part = |what: &str, members: &Vec<String>| {
                    (!members.is_empty()).then(|| format!("{what} {}", named(members.clone())))
                };
                let parts = [part("add", add), part("remove", remove)];
                parts.into_iter().flatten().collect::<Vec<String>>().join("; ")
            }
            Finding::Kept => {
                "left as it is: its pre-image is empty, and its Services have endpoints; pass --allow-empty to empty it"
                    .to_owned()
            }
            Finding::Unserved => {
                "left as it is: none of the nodes that endpoints are on is in its pre-image; pass --allow-unserved to \
                 write it all the same"
                    .to_owned()
            }
            Finding::Paused(pauses) => {
                format!("left as it is: {pauses}; name it by --pool to write it all the same")
            }
            Finding::Gone => "does not exist any more".to_owned(),
            Finding::Foreign => "left as it is: it is no managed Service's own pool".to_owned(),
            Finding::NotManageable(why) => format!("left as it is: {why}"),
        }
    }
}

/// What the machines want a pool to hold; the error says why they want nothing of it.
fn level<'a>(image: &Image, snapshot: &'a Snapshot) -> Result<&'a Level, Finding> {
    let refused = || snapshot.services.values().flat_map(|service| &service.not_manageable);
    if let Some((_, why)) = refused().find(|(id, _)| *id == image.id) {
        return Err(Finding::NotManageable(why.to_string()));
    }
    match (snapshot.pools.get(&image.id), &image.members) {
        (None, _) => Err(Finding::Foreign),
        (Some(_), Err(why)) => Err(unusable(why)),
        (Some(view), Ok(_)) if view.paused.contains(&PausedBy::NoPin) || !fits(image, view.family) => {
            let why = "its pre-image has members of the other IP family";
            Err(Finding::NotManageable(why.to_owned()))
        }
        (Some(view), Ok(_)) => Ok(&view.level),
    }
}

fn unusable(why: &str) -> Finding {
    Finding::NotManageable(format!("its pre-image cannot be restored: {why}"))
}

fn fits(image: &Image, family: Family) -> bool {
    let mut ips = image.members.iter().flat_map(|members| members.keys());
    ips.all(|ip| match family {
        Family::V4 => ip.is_ipv4(),
        Family::V6 => ip.is_ipv6(),
    })
}

/// The pauses of a pool by itself, of its Services, and by their annotations, in words.
fn pauses(id: &PoolId, snapshot: &Snapshot) -> Vec<String> {
    let policy = snapshot.policy.as_ref().and_then(|view| view.policy.as_deref());
    let pool = policy.and_then(|policy| policy.pools.get(id));
    let mut all: Vec<String> = pool.map(|pause| format!("paused {}", words(pause))).into_iter().collect();
    for key in snapshot.pools.get(id).into_iter().flat_map(|pool| pool.services.values()) {
        if let Some(pause) = policy.and_then(|policy| policy.services.get(key)) {
            all.push(format!("its Service {key} is paused {}", words(pause)));
        }
        if snapshot.services.get(key).is_some_and(|service| service.paused) {
            all.push(format!("its Service {key} has the annotation azure-backend-pool-controller.io/pause"));
        }
    }
    all
}

/// How many of the nodes that a pool's endpoints are on it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Served {
    of: usize,
    now: usize,
    /// As its pre-image has it.
    then: usize,
}

impl Served {
    /// `None`: there are no such nodes, or the members are not known.
    fn of(image: &Image, grounds: &Grounds<'_>) -> Option<Served> {
        let asked = grounds.snapshot.pools.get(&image.id)?.overruled.as_ref()?;
        let (then, now) = (image.members.as_ref().ok()?, members(grounds.documents.get(&image.id)?).ok()?);
        let held = |members: &Members| asked.iter().filter(|ip| members.contains_key(ip)).count();
        let served = Served { of: asked.len(), now: held(&now), then: held(then) };
        (served.of > 0).then_some(served)
    }

    /// In words, for a pool of which this was found.
    fn words(self, finding: &Finding) -> Option<String> {
        let Served { of, now, then } = self;
        let to_come = |would: &str| {
            let warning = if then < now || then == 0 { "warning: " } else { "" };
            let end = if then == 0 { format!(", and no traffic {would} be served") } else { String::new() };
            format!(
                "{warning}of the {of} nodes that endpoints are on it holds {now}, and {would} hold {then}{end}"
            )
        };
        match finding {
            Finding::Change { .. } => Some(to_come("will")),
            Finding::Kept | Finding::Unserved | Finding::Paused(_) => Some(to_come("would")),
            Finding::InSync | Finding::Same if now < of => {
                let end = if now == 0 { ", so no traffic is served" } else { "" };
                Some(format!("warning: of the {of} nodes that endpoints are on it holds {now}{end}"))
            }
            Finding::InSync
            | Finding::Same
            | Finding::Gone
            | Finding::Foreign
            | Finding::NotManageable(_) => None,
        }
    }
}

/// The plan in words: each pool that is out of sync, what is paused, how many of the nodes that endpoints are on are in a
/// pool and will be, and whatever is different and is not restored.
pub(super) fn lines(images: &[Image], findings: &[Finding], grounds: &Grounds<'_>) -> Vec<Printable> {
    let in_sync = findings.iter().filter(|finding| finding.is_in_sync()).count();
    let changes = findings.iter().filter(|finding| finding.is_change()).count();
    let others = findings.len() - in_sync - changes;
    let mut all = vec![printable!(
        "{changes} pools would be written, {in_sync} are in sync, {others} are left as they are"
    )];
    all.extend(of_all(grounds.snapshot));
    for (image, finding) in images.iter().zip(findings) {
        let words = (!finding.is_in_sync()).then(|| finding.words());
        let served = Served::of(image, grounds).and_then(|served| served.words(finding));
        let found: Vec<String> = words.into_iter().chain(served).collect();
        let mut lines = Vec::new();
        if !found.is_empty() {
            lines.push(found.join("; "));
        }
        let paused = pauses(&image.id, grounds.snapshot);
        if !paused.is_empty() && !matches!(finding, Finding::Paused(_)) {
            lines.push(paused.join("; "));
        }
        let left = grounds.documents.get(&image.id).map(|now| image.left(now)).unwrap_or_default();
        lines.extend(left.into_iter().map(|left| format!("not restored: {left}")));
        all.extend(lines.into_iter().map(|line| printable!("- {}: {line}", image.id)));
    }
    all
}

/// The pause of everything, and what looks like a pause and cannot be read.
fn of_all(snapshot: &Snapshot) -> Vec<Printable> {
    let view = snapshot.policy.as_ref();
    let everything = view.and_then(|view| view.policy.as_ref()?.everything.as_ref());
    let everything = everything.map(|pause| printable!("everything is paused {}", words(pause)));
    let unreadable = view.into_iter().flat_map(|view| &view.unreadable).map(|(key, why)| {
        printable!("warning: {key} of our ConfigMap looks like a pause and cannot be read: {why}")
    });
    everything.into_iter().chain(unreadable).collect()
}
