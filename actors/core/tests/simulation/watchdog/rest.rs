//! Admin states after the last event (N1, N2, N4, N5): Downs, records, and views (H3).

use std::collections::{BTreeMap, BTreeSet};

use model::arm::AdminState;
use model::node::NodeState;
use model::view::{NodePoolState, NodeView, Snapshot};
use simulator_models::arm::ArmModel;

use super::Watchdog;
use super::entries::{DOWN, EntryId, NONE, UP};
use super::nodes::Node;

/// Expected state of an existing node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ExpectedState {
    /// The node serves.
    Stays,
    /// The node must be Down in every pool that it is a member of.
    Leaves,
    /// The node waits, because too many others are Down.
    Waits,
}

impl Watchdog {
    fn expected_state(&self, now: u64, uid: &str, node: &Node) -> ExpectedState {
        let recorded = self.records.is_recorded(uid);
        if self.is_off {
            return ExpectedState::Stays;
        }
        match (node.leaves.is(), recorded) {
            (true, true) => ExpectedState::Leaves,
            (true, false) => ExpectedState::Waits,
            // A notice without a taint counts until the node has been Ready for long.
            (false, true) if node.may_be_noticed(now, u64::MAX) => ExpectedState::Leaves,
            (false, _) => ExpectedState::Stays,
        }
    }

    /// Checks the final admin states.
    ///
    /// # Errors
    /// The first violation.
    pub fn downs_at_rest(&self, now: u64, arm: &ArmModel) -> Result<(), String> {
        let entries = Watchdog::all_entries(arm);
        for (uid, node) in self.nodes.living() {
            match self.expected_state(now, uid, node) {
                ExpectedState::Waits => self.waits_for_others(node)?,
                ExpectedState::Stays if self.records.is_recorded(uid) => {
                    return Err(format!("N4: there is a record of {}, which does not drain", node.name));
                }
                ExpectedState::Stays | ExpectedState::Leaves => {}
            }
        }
        for (entry, state) in &entries {
            let Some((uid, node)) = self.nodes.owner(&entry.backend) else { continue };
            match self.expected_state(now, uid, node) {
                ExpectedState::Leaves if *state != DOWN => {
                    return Err(format!("N2: {entry} is of {}, which drains, and is {state}", node.name));
                }
                ExpectedState::Stays | ExpectedState::Waits
                    if *state == DOWN && self.entries.is_ours(entry) =>
                {
                    return Err(format!(
                        "N4: {entry} is of {}, which does not drain, and still Down",
                        node.name
                    ));
                }
                ExpectedState::Stays | ExpectedState::Waits | ExpectedState::Leaves => {}
            }
        }
        self.records_at_rest(&entries)
    }

    /// Checks N5: a node waits only while as many are Down as allowed.
    fn waits_for_others(&self, node: &Node) -> Result<(), String> {
        let down = |(uid, node): &(&String, &Node)| {
            node.serves.is() && node.leaves.is() && self.records.is_recorded(uid)
        };
        let down = self.nodes.living().filter(down).count();
        let ready = self.nodes.living().filter(|(_, node)| node.serves.is()).count();
        if !node.serves.is() || down < (ready / 2).max(2) {
            return Err(format!("N5: {} is not recorded, and {down} of {ready} are Down", node.name));
        }
        Ok(())
    }

    /// Checks N4: each record is of a draining node, or of a deleted one with a Down of ours.
    fn records_at_rest(&self, entries: &[(EntryId, &'static str)]) -> Result<(), String> {
        for (uid, record) in self.records.present() {
            match self.nodes.all.get(uid).filter(|node| node.there.is()) {
                Some(node) => {
                    let mut has = node.backends.iter().filter(|(_, has)| has.is());
                    if let Some((lacks, _)) = has.find(|(backend, _)| !record.holds(backend)) {
                        return Err(format!("N4: the record of {} lacks {lacks}", node.name));
                    }
                }
                None => {
                    let is_ours = |(entry, state): &&(EntryId, &str)| {
                        *state == DOWN && record.holds(&entry.backend) && !record.may_except(entry)
                    };
                    let needed = self.is_off || entries.iter().any(|entry| is_ours(&entry));
                    if !needed {
                        return Err(format!("N4: there is a record of {uid}, which has no Down"));
                    }
                }
            }
            if self.is_off {
                return Err(format!("N4: there is a record of {uid}, and the admin state is switched off"));
            }
        }
        Ok(())
    }

    /// Checks H3: the view of nodes is correct.
    ///
    /// # Errors
    ///
    /// A difference.
    pub fn nodes_shown(
        &self,
        now: u64,
        arm: &ArmModel,
        snapshot: &Snapshot,
        leads: bool,
    ) -> Result<(), String> {
        if !leads {
            let shown = snapshot.nodes.keys().next();
            return shown.map_or(Ok(()), |name| Err(format!("H3: {name} is shown by a standby")));
        }
        let entries = Watchdog::all_entries(arm);
        let mut wanted: BTreeMap<&str, NodeState> = BTreeMap::new();
        for (uid, _) in self.records.present() {
            if let Some(node) = self.nodes.all.get(uid).filter(|node| !node.there.is()) {
                wanted.insert(&node.name, NodeState::Gone);
            }
        }
        for (uid, node) in self.nodes.living() {
            match self.expected_state(now, uid, node) {
                ExpectedState::Leaves => wanted.insert(&node.name, NodeState::Down),
                ExpectedState::Waits => wanted.insert(&node.name, NodeState::Held),
                ExpectedState::Stays => continue,
            };
        }
        let shown: BTreeMap<&str, NodeState> =
            snapshot.nodes.iter().map(|(name, view)| (name.as_str(), view.state)).collect();
        if wanted != shown {
            return Err(format!("H3: nodes are shown as {shown:?} instead of {wanted:?}"));
        }
        for view in snapshot.nodes.values() {
            self.pools_shown(&entries, view)?;
        }
        let whole = snapshot.admin_state.as_ref().ok_or("H3: the view lacks the admin state")?;
        if whole.records != self.records.present().count() || !whole.fresh || whole.switched_off {
            return Err(format!("H3: the admin state is shown as {whole:?}"));
        }
        self.foreign_shown(now, &entries, snapshot)
    }

    /// Checks H3: a deleted node waits for no pool.
    ///
    /// # Errors
    ///
    /// A node that does.
    pub fn published(snapshot: &Snapshot) -> Result<(), String> {
        let waits = |view: &&NodeView| {
            let open = view.count(NodePoolState::Waiting) + view.count(NodePoolState::Failed);
            view.state == NodeState::Gone && open > 0
        };
        let mut views = snapshot.nodes.values().map(|view| &**view);
        views.find(waits).map_or(Ok(()), |view| Err(format!("H3: it is gone and waits: {view:?}")))
    }

    /// Checks H3: a node is shown with its pools.
    fn pools_shown(&self, entries: &[(EntryId, &'static str)], view: &NodeView) -> Result<(), String> {
        let record = self.records.all.get(view.uid.as_str());
        let node = self.nodes.all.get(view.uid.as_str());
        let is_its = |entry: &EntryId| {
            node.is_some_and(|node| node.has(&entry.backend))
                || record.is_some_and(|record| record.there.is() && record.holds(&entry.backend))
        };
        let downs = entries.iter().filter(|(entry, state)| *state == DOWN && is_its(entry));
        let downs: BTreeSet<String> = downs.map(|(entry, _)| entry.pool_words()).collect();
        let shown = |state: NodePoolState| {
            let pools = view.pools.iter().filter(move |pool| pool.state == state);
            pools.map(|pool| pool.pool.to_string().to_lowercase())
        };
        let down: BTreeSet<String> =
            shown(NodePoolState::Down).chain(shown(NodePoolState::Foreign)).collect();
        let open: Vec<String> = shown(NodePoolState::Waiting).chain(shown(NodePoolState::Failed)).collect();
        match view.state {
            NodeState::Held => Ok(()),
            NodeState::Down | NodeState::Gone if down == downs && open.is_empty() => Ok(()),
            NodeState::Down
            | NodeState::Gone
            | NodeState::Recording
            | NodeState::Draining
            | NodeState::Restoring => Err(format!("H3: {view:?}, and it is Down in {downs:?}")),
        }
    }

    /// Checks H3 and N4: Downs that other clients have set for nodes in service are shown.
    fn foreign_shown(
        &self,
        now: u64,
        entries: &[(EntryId, &'static str)],
        snapshot: &Snapshot,
    ) -> Result<(), String> {
        let whole = snapshot.admin_state.as_ref().ok_or("H3: the view lacks the admin state")?;
        let shown = |entry: &EntryId| {
            whole.foreign.iter().find(|foreign| {
                foreign.pool.to_string().to_lowercase() == entry.pool_words()
                    && foreign.backend.to_string() == entry.backend
            })
        };
        for (entry, state) in entries.iter().filter(|(_, state)| *state != NONE) {
            let Some((uid, node)) = self.nodes.owner(&entry.backend) else { continue };
            let stays = self.expected_state(now, uid, node) == ExpectedState::Stays;
            let known = shown(entry).map(|foreign| foreign.state);
            let wanted = if *state == UP { AdminState::Up } else { AdminState::Down };
            if stays && known != Some(wanted) {
                return Err(format!("H3: {entry} of {} is {state}, and shown as {known:?}", node.name));
            }
        }
        let is_there = |foreign: &&model::view::ForeignState| {
            entries.iter().any(|(entry, state)| {
                *state != NONE
                    && foreign.backend.to_string() == entry.backend
                    && foreign.pool.to_string().to_lowercase() == entry.pool_words()
            })
        };
        match whole.foreign.iter().find(|foreign| !is_there(foreign)) {
            Some(foreign) => Err(format!("H3: {foreign:?} is shown, and is not set")),
            None => Ok(()),
        }
    }
}
