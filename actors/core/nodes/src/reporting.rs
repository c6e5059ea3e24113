//! What the admin state reports: events, views for the board, and samples for the metrics (docs/design/reporting.md,
//! E1, E2; S1). Reports follow from the state of nodes, and no write follows from them.
//!
//! What concerns one node alone is reported in the turn in which it happens. What depends on the entries of pools is
//! computed after a change, at most every 250 ms, and less often the more entries there are: with 10,000 entries of
//! draining nodes, every 0.75 s.
//!
//! The modules:
//! - `transitions`: nodes that leave traffic and return, and which of these events were emitted;
//! - `failures`: which failures concern which node;
//! - `node_pools`: the pools of each node, and the state there;
//! - `foreign`: admin states that another component has set (N4);
//! - `views`: the views for the board;
//! - `gauges`: the samples for the metrics.

mod failures;
mod foreign;
mod gauges;
mod node_pools;
#[cfg(test)]
mod tests;
mod transitions;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::nodes::NodeStatus;
use super::pending_updates::PendingUpdates;
use super::pools::Pools;
use super::{NodeState, Out, Params};
use failures::Failures;
use foreign::Foreign;
use gauges::NodeGauges;
use mechanisms::work_queue::WorkQueue;
use model::draining::Draining;
use model::ids::{Epoch, NodeName, NodeUid, PoolId};
use model::machine::Now;
use model::node::NodeFact;
use model::report::{Condition, Ended, EventKind, Report, Subject};
use node_pools::NodePools;
use transitions::Transitions;
use views::Views;

/// The minimum interval between two scans of the entries of pools.
const SCAN_INTERVAL: Duration = Duration::from_millis(250);
/// The minimum interval grows by 1 ms for this many entries in the last scan.
const ENTRIES_PER_MILLISECOND: usize = 20;

/// What there is to tell of.
pub(super) struct Seen<'a> {
    /// Every node of which something is, or is to be, another thing than usual.
    pub(super) stands: &'a [NodeStatus<'a>],
    /// Every node that there is.
    pub(super) facts: &'a dyn Fn() -> Vec<&'a NodeFact>,
    /// How many Ready nodes are Down, or about to be, and how many there are in all (N5).
    pub(super) bound: &'a dyn Fn() -> (usize, usize),
    pub(super) pools: &'a Pools,
    pub(super) posts: &'a PendingUpdates,
    /// The pools for which nodes have begun to wait since the last time.
    pub(super) owed: &'a BTreeMap<NodeUid, BTreeSet<PoolId>>,
    pub(super) queue: &'a WorkQueue<NodeUid>,
    /// The set that the writer was told last.
    pub(super) set: &'a Draining,
    pub(super) records: RecordsView<'a>,
    pub(super) params: &'a Params,
    /// Whether a note has switched the admin state off.
    pub(super) switched_off: bool,
    /// Whether this process leads, in a term for which the records were read: else it does not know how far nodes are.
    pub(super) leads: bool,
    /// Whether anything may be begun.
    pub(super) acts: bool,
    /// Whether a node, how it stands, an entry of a pool, or what is due in one may be another than the last time.
    pub(super) changed: bool,
}

/// What is known of the records in our ConfigMap (N4).
pub(super) struct RecordsView<'a> {
    /// How many it holds that can be read.
    pub(super) count: usize,
    /// The keys of those that cannot be read, and why.
    pub(super) unreadable: &'a BTreeMap<Arc<str>, &'static str>,
    /// The nodes whose records it cannot take, and why.
    pub(super) refused: &'a BTreeMap<NodeUid, &'static str>,
    /// Whether it could be read, or written, when it was asked for last.
    pub(super) fresh: bool,
    /// What the last failed request about it said, until one succeeds.
    pub(super) last_error: Option<&'a Arc<str>>,
}

/// What was told, and is not to be told again.
#[derive(Debug, Default)]
pub(super) struct Reporting {
    /// The term in which events are posted; `None`: they would be dropped.
    term: Option<Epoch>,
    /// Since when this process leads.
    led: Option<Now>,
    /// Whether events could be told the last time.
    spoke: bool,
    moves: Transitions,
    failures: Failures,
    /// The nodes that were said to wait in this term (N5), and whether the process was said to hold nodes back.
    held: BTreeSet<NodeUid>,
    holding: bool,
    /// Whom it was reported that nodes wait, or that another client has set admin states, and still is so.
    waiting: BTreeSet<Subject>,
    overruled: BTreeSet<Subject>,
    /// The nodes of which it was said in this term that another client has set their admin states (N4).
    foreign: BTreeSet<NodeUid>,
    views: Views,
    gauges: NodeGauges,
    /// Whether the entries of all pools are to be looked at, and when they were last.
    stale: bool,
    looked: Option<Now>,
    /// The minimum interval from then to the next scan.
    scan_interval: Duration,
}

impl Reporting {
    /// Events are posted in this term from now on. What lasts is told once in each term.
    pub(super) fn reporting(&mut self, term: Option<Epoch>) {
        if self.term == term {
            return;
        }
        self.term = term;
        self.held.clear();
        self.holding = false;
        self.foreign.clear();
        self.waiting.clear();
        self.overruled.clear();
        self.stale = true;
    }

    /// Something has failed for these nodes, in a pool or apart from any.
    pub(super) fn failed(&mut self, pool: Option<&PoolId>, uids: &[NodeUid], why: Arc<str>) {
        for uid in uids {
            self.failures.add(pool, uid, &why);
        }
        self.stale |= !uids.is_empty();
    }

    /// When there is something to look at that was put off.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.looked.filter(|_| self.stale).map(|at| at.plus(self.scan_interval))
    }

    /// Tells what is new.
    pub(super) fn advance(&mut self, now: Now, seen: &Seen<'_>, out: &mut Vec<Out>) {
        self.gauges.tell_results(seen.queue, out);
        let speaks = seen.acts && self.term.is_some();
        self.stale |= seen.changed
            || speaks != self.spoke
            || seen.leads != self.led.is_some()
            || !self.views.show_the_whole(seen);
        self.spoke = speaks;
        if !self.stale && seen.stands.is_empty() && self.moves.len() == 0 {
            return;
        }
        let stands: &[NodeStatus<'_>] = if seen.leads { seen.stands } else { &[] };
        self.lead(now, seen.leads);
        self.tell_moves(now, stands, seen, speaks, out);
        self.failures.tell(now, stands, seen, speaks, out);
        self.gauges.tell_nodes(now, stands, seen, out);
        let waits = self.looked.is_some_and(|at| now.since(at) < self.scan_interval);
        if self.stale && !waits {
            self.look(now, stands, seen, speaks, out);
            self.stale = false;
            self.looked = Some(now);
        }
    }

    /// What is remembered of a term ends with it.
    fn lead(&mut self, now: Now, leads: bool) {
        if leads {
            self.led.get_or_insert(now);
        } else {
            self.led = None;
            self.moves.clear();
            self.failures.clear();
        }
    }

    fn tell_moves(
        &mut self,
        now: Now,
        stands: &[NodeStatus<'_>],
        seen: &Seen<'_>,
        speaks: bool,
        out: &mut Vec<Out>,
    ) {
        for stand in stands {
            let waits = || seen.posts.of(stand.uid).map(|(pool, _)| pool);
            let owed = || seen.owed.get(stand.uid).into_iter().flatten();
            self.stale |= self.moves.hear(now, self.led, stand, (waits, owed), out);
        }
        let standing = self.moves.len();
        let ended = self.moves.end(stands, speaks);
        self.stale |= self.moves.len() != standing;
        for ended in ended {
            let lives = || (seen.facts)().iter().any(|fact| fact.uid == ended.uid);
            if ended.pools > 0 && lives() {
                let what = EventKind::AdminRestored { pools: ended.pools };
                out.push(Out::Report(Report {
                    subjects: vec![node(&ended.name, &ended.uid)],
                    what,
                    note: None,
                }));
            }
        }
    }

    /// Looks at the entries of all pools.
    fn look(
        &mut self,
        now: Now,
        stands: &[NodeStatus<'_>],
        seen: &Seen<'_>,
        speaks: bool,
        out: &mut Vec<Out>,
    ) {
        let facts = if seen.leads { (seen.facts)() } else { Vec::new() };
        let places = NodePools::of(stands, seen);
        let entries: usize = places.all().map(<[_]>::len).sum();
        self.scan_interval = SCAN_INTERVAL
            + Duration::from_millis(u64::try_from(entries / ENTRIES_PER_MILLISECOND).unwrap_or(0));
        let foreign = Foreign::find(stands, &facts, seen);
        self.moves.note(stands, &places);
        if speaks {
            self.tell_down(stands, &places, out);
            self.tell_held(stands, &facts, seen, out);
            self.tell_foreign(&foreign, &facts, out);
        }
        self.gauges.tell_entries(&foreign, out);
        self.views.tell_nodes(views::of_nodes(now, stands, &places, &self.failures, seen), out);
        self.views.tell_the_whole(views::of_the_whole(seen, foreign), out);
    }

    /// Nodes that are cut out everywhere, and are in a pool at all (S1).
    fn tell_down(&mut self, stands: &[NodeStatus<'_>], places: &NodePools, out: &mut Vec<Out>) {
        for (stand, places) in stands.iter().zip(places.all()) {
            let (pools, balancers) = node_pools::downs(places);
            if pools == 0 || !self.moves.tell_down(stand) {
                continue;
            }
            let (signals, unknown) = (stand.signals.clone(), node_pools::unknown(places));
            let what = EventKind::AdminDown { pools, balancers, signals, unknown };
            out.push(Out::Report(Report { subjects: vec![node(stand.name, stand.uid)], what, note: None }));
        }
    }

    /// Nodes that wait because so many others are Down (N5).
    fn tell_held(
        &mut self,
        stands: &[NodeStatus<'_>],
        facts: &[&NodeFact],
        seen: &Seen<'_>,
        out: &mut Vec<Out>,
    ) {
        let waits: Vec<&NodeStatus<'_>> =
            stands.iter().filter(|stand| stand.state == NodeState::Held).collect();
        let mut hold: BTreeSet<Subject> = waits.iter().map(|stand| node(stand.name, stand.uid)).collect();
        hold.extend((!waits.is_empty()).then_some(Subject::Controller));
        end(&mut self.waiting, &hold, &Condition::AdminHeld, out);
        let mut subjects: Vec<Subject> = waits
            .into_iter()
            .filter(|stand| self.held.insert(stand.uid.clone()))
            .map(|stand| node(stand.name, stand.uid))
            .collect();
        keep_living(&mut self.held, facts);
        if subjects.is_empty() {
            return;
        }
        if !std::mem::replace(&mut self.holding, true) {
            subjects.push(Subject::Controller);
        }
        self.waiting.extend(subjects.iter().cloned());
        let (down, ready) = (seen.bound)();
        out.push(Out::Report(Report { subjects, what: EventKind::AdminHeld { down, ready }, note: None }));
    }

    /// Nodes that do not leave service and have an admin state that is not ours (N4).
    fn tell_foreign(&mut self, foreign: &Foreign, facts: &[&NodeFact], out: &mut Vec<Out>) {
        let hold = foreign.nodes.iter().map(|(uid, of)| node(&of.name, uid)).collect();
        end(&mut self.overruled, &hold, &Condition::AdminForeign, out);
        for (uid, of) in &foreign.nodes {
            if self.foreign.insert(uid.clone()) {
                let what = EventKind::AdminForeign {
                    pools: of.pools.len(),
                    example: of.example.clone(),
                    state: of.state,
                };
                let subject = node(&of.name, uid);
                self.overruled.insert(subject.clone());
                out.push(Out::Report(Report { subjects: vec![subject], what, note: None }));
            }
        }
        keep_living(&mut self.foreign, facts);
    }
}

/// Says for which of those who were told of a condition it does not hold any more.
fn end(told: &mut BTreeSet<Subject>, hold: &BTreeSet<Subject>, condition: &Condition, out: &mut Vec<Out>) {
    let over = told.extract_if(.., |subject| !hold.contains(subject));
    out.extend(
        over.map(|subject| Out::Ended(Ended { condition: condition.clone(), subject: Some(subject) })),
    );
}

fn node(name: &NodeName, uid: &NodeUid) -> Subject {
    Subject::Node { name: name.clone(), uid: uid.clone() }
}

/// Nodes that are gone do not come back.
fn keep_living(uids: &mut BTreeSet<NodeUid>, facts: &[&NodeFact]) {
    if uids.is_empty() {
        return;
    }
    let living: BTreeSet<&NodeUid> = facts.iter().map(|fact| &fact.uid).collect();
    uids.retain(|uid| living.contains(uid));
}
