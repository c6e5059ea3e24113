//! Property tests with facts, events and answers in any order. At most one patch of a node is in flight, no patch
//! removes a foreign taint, and in the end no Ready node has the controller's taint.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use model::object::GIVE_UP_AFTER;

const NODES: usize = 3;

/// An event. Nodes and patches are given by index.
#[derive(Clone, Debug)]
enum Action {
    /// An event of this age in seconds, from a list or as a change.
    Event(usize, u16, bool),
    /// A condition of this age. `None`: it ends.
    Condition(usize, Option<u16>),
    Ready(usize, bool),
    /// Another client adds or removes one of the taints.
    Taint(usize, usize, bool),
    Recreated(usize),
    /// The next state of a node is delivered, or the newest.
    Told(usize, bool),
    /// The end of a patch in flight.
    Ends(usize, End),
    Passes(u16),
    /// The term of this process ends, or begins.
    Leads(bool),
    Restarts,
    /// Enables or disables the writing of records.
    Records(bool),
}

#[derive(Clone, Copy, Debug)]
enum End {
    /// It is applied, if possible, and answered later.
    CarriedOut,
    Answered,
    /// The answer is lost, and the patch was applied or not.
    Lost(bool),
    Denied,
    Withheld,
}

fn action() -> impl Strategy<Value = Action> {
    let n = 0..NODES;
    let end = prop_oneof![
        6 => Just(End::CarriedOut),
        6 => Just(End::Answered),
        2 => any::<bool>().prop_map(End::Lost),
        1 => Just(End::Denied),
        1 => Just(End::Withheld),
    ];
    prop_oneof![
        4 => (n.clone(), 0_u16..90, any::<bool>()).prop_map(|(n, age, listed)| Action::Event(n, age, listed)),
        2 => (n.clone(), prop::option::of(0_u16..90)).prop_map(|(n, age)| Action::Condition(n, age)),
        2 => (n.clone(), any::<bool>()).prop_map(|(n, ready)| Action::Ready(n, ready)),
        3 => (n.clone(), 0_usize..4, any::<bool>()).prop_map(|(n, which, add)| Action::Taint(n, which, add)),
        1 => n.clone().prop_map(Action::Recreated),
        8 => (n, any::<bool>()).prop_map(|(n, newest)| Action::Told(n, newest)),
        9 => (0_usize..4, end).prop_map(|(at, end)| Action::Ends(at, end)),
        4 => prop_oneof![0_u16..8, 0_u16..1_000].prop_map(Action::Passes),
        1 => any::<bool>().prop_map(Action::Leads),
        1 => Just(Action::Restarts),
        1 => any::<bool>().prop_map(Action::Records),
    ]
}

/// The actual state of a node.
struct Real {
    fact: NodeFact,
    /// States that were not delivered yet.
    untold: VecDeque<NodeFact>,
    told: NodeFact,
    /// Time since which it is Ready in the delivered states.
    ready_since: Option<Now>,
    /// True if the controller added the taint.
    by_us: bool,
    /// True if the controller has sent a patch that adds the taint.
    sent: bool,
}

/// A sent patch, and its answer once it is applied.
struct SentPatch {
    call: CallId,
    patch: TaintPatch,
    at: Now,
    answer: Option<TaintAnswer>,
}

struct World {
    notices: EvictionNotices,
    now: Now,
    actions: bool,
    writes: bool,
    /// Nodes with a record of the controller's taint.
    records: BTreeSet<NodeUid>,
    nodes: Vec<Real>,
    sent: Vec<SentPatch>,
    /// Number of states, events and nodes so far.
    count: u64,
}

impl Real {
    fn new(fact: NodeFact, now: Now) -> Real {
        let untold = VecDeque::new();
        Real { told: fact.clone(), fact, untold, ready_since: Some(now), by_us: false, sent: false }
    }

    fn is_marked(&self) -> bool {
        self.fact.taints.contains(&mark())
    }
}

impl World {
    fn new() -> World {
        let mut world = World {
            notices: EvictionNotices::default(),
            now: Now::from_millis(10_000_000),
            actions: true,
            writes: true,
            records: BTreeSet::new(),
            nodes: Vec::new(),
            sent: Vec::new(),
            count: 1,
        };
        for n in 0..NODES {
            let real = Real::new(node(&format!("n{n}")), world.now);
            world.notices.on_fact(world.now, &real.fact);
            world.nodes.push(real);
        }
        world
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn change(&mut self, n: usize, change: impl FnOnce(&mut NodeFact)) {
        let version = version(self.next());
        let real = &mut self.nodes[n];
        change(&mut real.fact);
        real.fact.version = version;
        real.by_us &= real.is_marked();
        real.untold.push_back(real.fact.clone());
    }

    fn deliver(&mut self, n: usize, newest: bool) {
        let real = &mut self.nodes[n];
        let next = if newest { real.untold.drain(..).next_back() } else { real.untold.pop_front() };
        let Some(fact) = next else { return };
        real.ready_since = fact.ready.then(|| real.ready_since.unwrap_or(self.now));
        real.told = fact.clone();
        self.notices.on_fact(self.now, &fact);
    }

    fn deliver_all(&mut self) {
        for n in 0..NODES {
            while !self.nodes[n].untold.is_empty() {
                self.deliver(n, false);
            }
        }
    }

    /// Returns the API server's answer to a patch.
    fn carry_out(&mut self, patch: &TaintPatch) -> TaintAnswer {
        let Some(n) = self.nodes.iter().position(|real| real.fact.name == patch.node) else {
            return TaintAnswer::Gone;
        };
        let fact = &self.nodes[n].fact;
        let has_ours =
            fact.taints.iter().any(|taint| taint.key == mark().key && taint.effect == mark().effect);
        let allowed = match patch.edit {
            TaintEdit::AddTo => !fact.taints.is_empty() && !has_ours,
            TaintEdit::AddFirst => fact.taints.is_empty(),
            TaintEdit::Remove { at } => fact.taints.get(at) == Some(&mark()),
        };
        if fact.uid != patch.uid || !allowed {
            return TaintAnswer::Overtaken;
        }
        self.change(n, |fact| match patch.edit {
            TaintEdit::AddTo | TaintEdit::AddFirst => fact.taints.push(mark()),
            TaintEdit::Remove { at } => drop(fact.taints.remove(at)),
        });
        self.nodes[n].by_us = self.nodes[n].is_marked();
        TaintAnswer::Done
    }

    fn carry_out_all(&mut self, n: usize) {
        let uid = self.nodes[n].fact.uid.clone();
        for at in 0..self.sent.len() {
            if self.sent[at].patch.uid == uid && self.sent[at].answer.is_none() {
                let patch = self.sent[at].patch.clone();
                self.sent[at].answer = Some(self.carry_out(&patch));
            }
        }
    }

    fn end(&mut self, at: usize, end: End) {
        if self.sent.is_empty() {
            return;
        }
        let at = at % self.sent.len();
        let answer = match (end, self.sent[at].answer.take()) {
            (End::CarriedOut, None) => {
                let patch = self.sent[at].patch.clone();
                self.sent[at].answer = Some(self.carry_out(&patch));
                return;
            }
            (End::Answered, None) => return,
            (_, Some(answer)) => answer,
            (End::Lost(carried_out), None) => {
                if carried_out {
                    let patch = self.sent[at].patch.clone();
                    self.carry_out(&patch);
                }
                lost()
            }
            // Without writes there is nothing to remove either.
            (End::Withheld, None) if !matches!(self.sent[at].patch.edit, TaintEdit::Remove { .. }) => {
                TaintAnswer::Withheld
            }
            (End::Denied | End::Withheld, None) => denied(),
        };
        let sent = self.sent.remove(at);
        self.notices.on_tainted(self.now, sent.call, &answer);
    }

    /// Ends all patches in flight in some way, and delivers the results.
    fn drain(&mut self) {
        while let Some(sent) = self.sent.pop() {
            let answer = sent.answer.unwrap_or_else(|| self.carry_out(&sent.patch));
            if sent.call.0 % 3 > 0 {
                self.notices.on_tainted(self.now, sent.call, &answer);
            }
        }
        self.deliver_all();
    }

    fn begin(&mut self) {
        self.drain();
        for uid in self.records.clone() {
            self.notices.on_read(&uid);
        }
        self.notices.begin();
        self.actions = true;
    }

    fn happen(&mut self, action: Action) {
        match action {
            Action::Event(n, age, listed) => {
                let (number, name) = (self.next(), format!("n{n}"));
                let age = Some(seconds(age.into()));
                let event = PreemptionObject { key: key(&number.to_string()), age, at: None, ..event(&name) };
                let list = [
                    WatchUpdate::ListBegan(Provenance::Relist),
                    seen(event.clone()),
                    WatchUpdate::ListAborted,
                ];
                let all = if listed { list.to_vec() } else { vec![seen(event)] };
                all.iter().for_each(|seen| self.notices.on_seen(self.now, seen));
            }
            Action::Condition(n, age) => {
                let second = i64::try_from(self.next()).expect("it is small");
                let preempt = age.and_then(|age| {
                    let age = Some(seconds(age.into()));
                    Some(Preempt { age, ..condition(NOTICE, 2_000 + second)? })
                });
                self.change(n, |fact| fact.preempt = preempt);
            }
            Action::Ready(n, ready) => self.change(n, |fact| fact.ready = ready),
            Action::Taint(n, which, add) => {
                let drains = taint(DRAINING, SPOT_EVICTION, "NoExecute");
                let other = taint(DRAINING, "maintenance", "NoSchedule");
                let taint = [mark(), drains, other, spot_pool()][which].clone();
                let same = |known: &Taint| known.key == taint.key && known.effect == taint.effect;
                // No other client adds and removes the same taint within the duration of a patch and its watch event.
                self.carry_out_all(n);
                self.change(n, |fact| {
                    fact.taints.retain(|known| !same(known));
                    fact.taints.extend(add.then(|| taint.clone()));
                });
                self.nodes[n].by_us &= which != 0;
                self.deliver_all();
            }
            Action::Recreated(n) => {
                self.deliver_all();
                let old = self.nodes[n].fact.clone();
                let number = self.next();
                let fact = NodeFact {
                    uid: uid(&number.to_string()),
                    version: version(number),
                    ..node(old.name.as_str())
                };
                self.notices.on_fact(self.now, &fact);
                self.notices.on_gone(self.now, &old.uid);
                self.records.remove(&old.uid);
                self.nodes[n] = Real::new(fact, self.now);
            }
            Action::Told(n, newest) => self.deliver(n, newest),
            Action::Ends(at, end) => self.end(at, end),
            Action::Passes(span) => self.pass(seconds(span.into())),
            Action::Leads(true) if !self.actions => self.begin(),
            Action::Leads(true) => {}
            Action::Leads(false) => self.actions = false,
            Action::Restarts => {
                self.drain();
                self.notices = EvictionNotices { calls: self.notices.calls, ..EvictionNotices::default() };
                for real in &mut self.nodes {
                    real.ready_since = real.fact.ready.then_some(self.now);
                    real.sent |= self.records.contains(&real.fact.uid);
                    self.notices.on_fact(self.now, &real.fact);
                }
                self.begin();
            }
            Action::Records(writes) => self.writes = writes,
        }
        self.reconcile();
    }

    /// Advances the clock. Patches are answered and states delivered at most a few seconds late.
    fn pass(&mut self, span: Duration) {
        let until = self.now.plus(span);
        if span >= seconds(5) {
            self.drain();
        }
        let mut turns = 0;
        while let Some(at) = self.notices.deadline().filter(|at| self.actions && *at <= until) {
            turns += 1;
            assert!(turns < 2_000, "it does not become idle");
            self.now = at.max(self.now);
            self.reconcile();
            if span >= seconds(5) {
                self.drain();
                self.reconcile();
            }
        }
        self.now = until;
    }

    fn reconcile(&mut self) {
        if !self.actions {
            return;
        }
        for turn in 0.. {
            assert!(turn < 10, "it does not become idle");
            let mut out = Vec::new();
            let (records, now) = (self.records.clone(), self.now);
            self.notices.reconcile(now, |uid| records.contains(uid), &mut out);
            for output in out {
                if let Out::Taint(call, patch) = output {
                    self.sends(call, patch);
                }
            }
            let changed = self.notices.changed();
            if changed.is_empty() || !self.writes {
                break;
            }
            for uid in changed {
                if self.notices.is_ours(&uid) {
                    self.records.insert(uid);
                } else {
                    self.records.remove(&uid);
                }
            }
        }
    }

    fn sends(&mut self, call: CallId, patch: TaintPatch) {
        let (notices, now) = (&self.notices, self.now);
        let is_under_way =
            |sent: &SentPatch| sent.patch.uid == patch.uid && now < sent.at.plus(GIVE_UP_AFTER);
        assert!(!self.sent.iter().any(is_under_way), "one patch at a time: {patch:?}");
        let real = self.nodes.iter_mut().find(|real| real.fact.uid == patch.uid).expect("it exists");
        assert_eq!(real.told.name, patch.node);
        let is_marked =
            real.told.taints.iter().any(|taint| taint.value == mark().value && taint.key == mark().key);
        match patch.edit {
            TaintEdit::AddTo | TaintEdit::AddFirst => {
                assert!(
                    notices.is_noticed(&patch.uid) && notices.is_ours(&patch.uid) && !is_marked,
                    "{patch:?}"
                );
                assert!(self.records.contains(&patch.uid), "not without a record");
                assert_eq!(patch.edit == TaintEdit::AddFirst, real.told.taints.is_empty());
                real.sent = true;
            }
            TaintEdit::Remove { at } => {
                assert!(real.sent, "it cannot be the controller's");
                assert_eq!(real.told.taints.get(at), Some(&mark()), "only a taint like the controller's");
                let since = real.ready_since.expect("it is Ready");
                assert!(now >= since.plus(READY_FOR) && !notices.is_noticed(&patch.uid), "not before");
            }
        }
        self.sent.push(SentPatch { call, patch, at: now, answer: None });
    }

    /// Lets time pass without faults.
    fn run_to_idle(&mut self) {
        self.writes = true;
        if !self.actions {
            self.begin();
        }
        for n in 0..NODES {
            self.change(n, |fact| fact.ready = true);
        }
        self.drain();
        self.reconcile();
        self.pass(seconds(4_000));
        self.drain();
        self.reconcile();
        self.pass(seconds(4_000));
        assert_eq!(self.notices.deadline(), None);
        for real in &self.nodes {
            let uid = &real.fact.uid;
            assert!(!self.notices.is_noticed(uid), "{uid}");
            assert!(!self.notices.is_ours(uid) && !real.by_us, "{uid}");
        }
    }
}

proptest! {
    #[test]
    fn n1_patches_run_one_at_a_time_and_leave_no_taint_of_ours(
        actions in prop::collection::vec(action(), 0..80),
    ) {
        let mut world = World::new();
        for action in actions {
            world.happen(action);
        }
        world.run_to_idle();
    }
}
