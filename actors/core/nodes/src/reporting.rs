//! Reports of the admin state: events, views for the snapshot, and samples for the metrics (docs/design/reporting.md,
//! E1, E2; S1). Reports follow from the state of nodes, and no write follows from them.
//!
//! Facts about one node alone are reported in the turn in which they arise. Facts that depend on the entries of pools
//! are computed after a change, at most every 250 ms. The interval grows with the number of entries: with 10,000
//! entries of draining nodes, it is 0.75 s.
//!
//! The modules:
//! - `direction`: whether a node leaves traffic or returns;
//! - `transitions`: nodes that leave traffic and return, and which of these events were emitted;
//! - `node_failures`: the last failure of each node;
//! - `node_pools`: the pools of each node, and the state there;
//! - `foreign`: admin states that another component has set (N4);
//! - `views`: the views for the snapshot;
//! - `gauges`: the samples for the metrics.

mod direction;
mod foreign;
mod gauges;
mod node_failures;
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
use foreign::ForeignStates;
use gauges::NodeGauges;
use mechanisms::once_per_term::OncePerTerm;
use mechanisms::work_queue::WorkQueue;
use model::draining::Draining;
use model::ids::{Epoch, NodeName, NodeUid, PoolId};
use model::machine::Now;
use model::node::NodeFact;
use model::report::{Condition, Ended, EventKind, Report, Subject};
use node_failures::NodeFailures;
use node_pools::NodePools;
use transitions::Transitions;
use views::Views;

/// Shortest interval between two scans of the entries of pools.
const SCAN_INTERVAL: Duration = Duration::from_millis(250);
/// Number of entries in the last scan that adds 1 ms to that interval.
const ENTRIES_PER_MILLISECOND: usize = 20;

/// The state to report.
pub(super) struct ReportInput<'a> {
    /// All nodes that drain, or are being restored, or are about to.
    pub(super) statuses: &'a [NodeStatus<'a>],
    /// All existing nodes.
    pub(super) facts: &'a dyn Fn() -> Vec<&'a NodeFact>,
    /// Number of Ready nodes that are Down or about to be, and number of all Ready nodes (N5).
    pub(super) bound: &'a dyn Fn() -> (usize, usize),
    pub(super) pools: &'a Pools,
    pub(super) updates: &'a PendingUpdates,
    /// The pools that nodes have begun to wait for since the last report.
    pub(super) added: &'a BTreeMap<NodeUid, BTreeSet<PoolId>>,
    pub(super) queue: &'a WorkQueue<NodeUid>,
    /// The set that was last sent to the writer.
    pub(super) set: &'a Draining,
    pub(super) records: RecordsView<'a>,
    pub(super) params: &'a Params,
    /// Whether the key in our ConfigMap switches the admin state off.
    pub(super) switched_off: bool,
    /// Whether this process leads, in a term with known records. Otherwise it does not know the progress of nodes.
    pub(super) leads: bool,
    /// Whether new work may begin.
    pub(super) acts: bool,
    /// Whether a node, an entry of a pool or a pending update may have changed since the last report.
    pub(super) changed: bool,
}

/// The known records of our ConfigMap (N4).
pub(super) struct RecordsView<'a> {
    /// Number of readable records.
    pub(super) count: usize,
    /// Keys of unreadable records, with the reason.
    pub(super) unreadable: &'a BTreeMap<Arc<str>, &'static str>,
    /// Nodes whose records cannot be stored, with the reason.
    pub(super) refused: &'a BTreeMap<NodeUid, &'static str>,
    /// Whether the last request about the ConfigMap succeeded.
    pub(super) fresh: bool,
    /// Error of the last failed request, until one succeeds.
    pub(super) last_error: Option<&'a Arc<str>>,
}

/// The reports of the admin state, and what was already reported.
#[derive(Debug, Default)]
pub(super) struct Reporting {
    /// Term in which events are posted. `None`: events would be dropped.
    term: Option<Epoch>,
    /// Time since which this process leads.
    led: Option<Now>,
    /// Whether events could be posted at the last report.
    could_report: bool,
    transitions: Transitions,
    failures: NodeFailures,
    /// Reports that nodes wait, on these and on the controller (N5).
    held: OncePerTerm<Subject>,
    /// Reports about nodes with foreign admin states (N4).
    foreign: OncePerTerm<Subject>,
    views: Views,
    gauges: NodeGauges,
    /// Whether the entries of all pools must be scanned.
    stale: bool,
    /// Time of the last scan.
    scanned: Option<Now>,
    /// Shortest interval from the last scan to the next one.
    scan_interval: Duration,
}

impl Reporting {
    /// Posts events in this term from now on. Lasting conditions are reported once in each term.
    pub(super) fn set_term(&mut self, term: Option<Epoch>) {
        if self.term == term {
            return;
        }
        self.term = term;
        self.held.clear();
        self.foreign.clear();
        self.stale = true;
    }

    /// Records a failure for these nodes, in a pool or outside any.
    pub(super) fn failed(&mut self, pool: Option<&PoolId>, uids: &[NodeUid], why: Arc<str>) {
        for uid in uids {
            self.failures.add(pool, uid, &why);
        }
        self.stale |= !uids.is_empty();
    }

    /// Returns the time of a delayed scan.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.scanned.filter(|_| self.stale).map(|at| at.plus(self.scan_interval))
    }

    /// Reports what has changed.
    pub(super) fn report(&mut self, now: Now, input: &ReportInput<'_>, out: &mut Vec<Out>) {
        self.gauges.emit_results(input.queue, out);
        let can_report = input.acts && self.term.is_some();
        self.stale |= input.changed
            || can_report != self.could_report
            || input.leads != self.led.is_some()
            || !self.views.summary_is_current(input);
        self.could_report = can_report;
        if !self.stale && input.statuses.is_empty() && self.transitions.len() == 0 {
            return;
        }
        let statuses: &[NodeStatus<'_>] = if input.leads { input.statuses } else { &[] };
        self.lead(now, input.leads);
        self.report_transitions(now, statuses, input, can_report, out);
        self.failures.report(now, statuses, input, can_report, out);
        self.gauges.emit_nodes(now, statuses, input, out);
        let waits = self.scanned.is_some_and(|at| now.since(at) < self.scan_interval);
        if self.stale && !waits {
            self.scan(now, statuses, input, can_report, out);
            self.stale = false;
            self.scanned = Some(now);
        }
    }

    /// Drops the state of a term when it ends.
    fn lead(&mut self, now: Now, leads: bool) {
        if leads {
            self.led.get_or_insert(now);
        } else {
            self.led = None;
            self.transitions.clear();
            self.failures.clear();
        }
    }

    fn report_transitions(
        &mut self,
        now: Now,
        statuses: &[NodeStatus<'_>],
        input: &ReportInput<'_>,
        can_report: bool,
        out: &mut Vec<Out>,
    ) {
        for status in statuses {
            let waits = || input.updates.of(status.uid).map(|(pool, _)| pool);
            let added = || input.added.get(status.uid).into_iter().flatten();
            self.stale |= self.transitions.apply_status(now, self.led, status, (waits, added), out);
        }
        let before = self.transitions.len();
        let ended = self.transitions.end(statuses, can_report);
        self.stale |= self.transitions.len() != before;
        for ended in ended {
            let lives = || (input.facts)().iter().any(|fact| fact.uid == ended.uid);
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

    /// Scans the entries of all pools.
    fn scan(
        &mut self,
        now: Now,
        statuses: &[NodeStatus<'_>],
        input: &ReportInput<'_>,
        can_report: bool,
        out: &mut Vec<Out>,
    ) {
        let facts = if input.leads { (input.facts)() } else { Vec::new() };
        let node_pools = NodePools::of(statuses, input);
        let entries: usize = node_pools.all().map(<[_]>::len).sum();
        self.scan_interval = SCAN_INTERVAL
            + Duration::from_millis(u64::try_from(entries / ENTRIES_PER_MILLISECOND).unwrap_or(0));
        let foreign = ForeignStates::find(statuses, &facts, input);
        self.transitions.record_pools(statuses, &node_pools);
        if can_report {
            self.report_down(statuses, &node_pools, out);
            self.report_held(statuses, &facts, input, out);
            self.report_foreign(&foreign, &facts, out);
        }
        self.gauges.emit_entries(&foreign, out);
        self.views.publish_nodes(views::of_nodes(now, statuses, &node_pools, &self.failures, input), out);
        self.views.publish_summary(views::summary(input, foreign), out);
    }

    /// Reports nodes that are Down in all their pools (S1).
    fn report_down(&mut self, statuses: &[NodeStatus<'_>], node_pools: &NodePools, out: &mut Vec<Out>) {
        for (status, node_pools) in statuses.iter().zip(node_pools.all()) {
            let (pools, balancers) = node_pools::downs(node_pools);
            if pools == 0 || !self.transitions.report_down(status) {
                continue;
            }
            let (signals, unknown) = (status.signals.clone(), node_pools::unknown(node_pools));
            let what = EventKind::AdminDown { pools, balancers, signals, unknown };
            out.push(Out::Report(Report { subjects: vec![node(status.name, status.uid)], what, note: None }));
        }
    }

    /// Reports nodes that wait because too many others are Down (N5).
    fn report_held(
        &mut self,
        statuses: &[NodeStatus<'_>],
        facts: &[&NodeFact],
        input: &ReportInput<'_>,
        out: &mut Vec<Out>,
    ) {
        let waits = statuses.iter().filter(|status| status.state == NodeState::Held);
        let waits: Vec<Subject> = waits.map(|status| node(status.name, status.uid)).collect();
        let controller = Subject::Controller;
        let mut hold: BTreeSet<&Subject> = waits.iter().collect();
        hold.extend((!waits.is_empty()).then_some(&controller));
        end(&mut self.held, &hold, &Condition::AdminHeld, out);
        let mut subjects: Vec<Subject> =
            waits.into_iter().filter(|subject| self.held.report(subject)).collect();
        keep_living(&mut self.held, facts);
        if subjects.is_empty() {
            return;
        }
        if self.held.report(&controller) {
            subjects.push(controller);
        }
        let (down, ready) = (input.bound)();
        out.push(Out::Report(Report { subjects, what: EventKind::AdminHeld { down, ready }, note: None }));
    }

    /// Reports nodes that do not drain and have an admin state that is not ours (N4).
    fn report_foreign(&mut self, foreign: &ForeignStates, facts: &[&NodeFact], out: &mut Vec<Out>) {
        let subjects: Vec<Subject> = foreign.nodes.iter().map(|(uid, of)| node(&of.name, uid)).collect();
        end(&mut self.foreign, &subjects.iter().collect::<BTreeSet<_>>(), &Condition::AdminForeign, out);
        for (subject, of) in subjects.into_iter().zip(foreign.nodes.values()) {
            if self.foreign.report(&subject) {
                let what = EventKind::AdminForeign {
                    pools: of.pools.len(),
                    example: of.example.clone(),
                    state: of.state,
                };
                out.push(Out::Report(Report { subjects: vec![subject], what, note: None }));
            }
        }
        keep_living(&mut self.foreign, facts);
    }
}

/// Ends the condition for subjects to which it does not apply any more.
fn end(
    reports: &mut OncePerTerm<Subject>,
    hold: &BTreeSet<&Subject>,
    condition: &Condition,
    out: &mut Vec<Out>,
) {
    let over = reports.end(|subject| hold.contains(subject));
    out.extend(
        over.map(|subject| Out::Ended(Ended { condition: condition.clone(), subject: Some(subject) })),
    );
}

fn node(name: &NodeName, uid: &NodeUid) -> Subject {
    Subject::Node { name: name.clone(), uid: uid.clone() }
}

/// Drops deleted nodes, which never return under the same UID.
fn keep_living(reports: &mut OncePerTerm<Subject>, facts: &[&NodeFact]) {
    if reports.is_empty() {
        return;
    }
    let living: BTreeSet<&NodeUid> = facts.iter().map(|fact| &fact.uid).collect();
    reports.retain(|subject| match subject {
        Subject::Node { uid, .. } => living.contains(uid),
        Subject::Service(_) | Subject::Controller => true,
    });
}
