//! The goals of each stage, and the transition at its end.

use std::collections::BTreeSet;

use model::machine::Now;
use serde_json::Value;

use super::goal::Goal;
use super::task::{Progress, Task, is_address_in_use};
use super::{Apply, ApplyOut, CHECK_ROUNDS, DETACH_ROUNDS, Guide, HAND_OVER, Outcome, Stage};
use crate::inventory::{Frontend, Purpose};
use crate::json::is_basic;
use crate::members::MemberKind;
use crate::resource_id::ResourceId;
use crate::target::Target;
use crate::work::AddressFate;

impl Apply {
    /// Returns the frontends of a target that cannot be built now.
    pub(super) fn unavailable_of(&self, target: usize) -> BTreeSet<String> {
        let names = self.unavailable.keys().filter(|(of, _)| *of == target);
        names.map(|(_, frontend)| frontend.clone()).collect()
    }

    /// Returns the targets that are not created, because none of their frontends can be built.
    pub(super) fn omitted(&self) -> BTreeSet<ResourceId> {
        let concerned: BTreeSet<usize> = self.unavailable.keys().map(|(target, _)| *target).collect();
        let targets = concerned.into_iter().map(|at| (self.unavailable_of(at), &self.work.targets[at]));
        let is_bare = |(lacking, target): &(BTreeSet<String>, &Target)| {
            Frontend::all(&target.id, &target.body).all(|frontend| lacking.contains(frontend.name))
        };
        targets.filter(is_bare).map(|(_, target)| target.id.clone()).collect()
    }

    /// Records that a frontend can be built now.
    fn on_available(&mut self, frontend: &(usize, String)) {
        let was_omitted = self.omitted().contains(&self.work.targets[frontend.0].id);
        if self.unavailable.remove(frontend).is_some() {
            self.builds_again |= was_omitted;
        }
    }

    /// Records the result of a goal.
    pub(super) fn on_reached(&mut self, goal: &Goal, live: Option<&Value>) {
        match goal {
            Goal::Inspect(id) => match live {
                Some(body) if is_basic(body) => drop(self.alive.insert(id.clone())),
                Some(body) => drop(self.standard.insert(id.clone(), body.clone())),
                None => {}
            },
            Goal::Free(target, address) => self.on_available(&(*target, address.frontend.clone())),
            Goal::Upgrade(id) => {
                for frontend in self.frontends_of(id) {
                    self.on_available(&frontend);
                }
            }
            Goal::Build(target) => {
                if let Some(body) = live {
                    self.standard.insert(self.work.targets[*target].id.clone(), body.clone());
                }
            }
            Goal::Static(_)
            | Goal::Unchanged(_)
            | Goal::Detach(..)
            | Goal::Instances(_)
            | Goal::Delete(_)
            | Goal::Convert(_)
            | Goal::Attach(..) => {}
        }
    }

    /// Returns the frontends of targets that have a public address.
    fn frontends_of(&self, address: &ResourceId) -> Vec<(usize, String)> {
        let targets = self.work.targets.iter().enumerate();
        let all =
            targets.flat_map(|(at, target)| Frontend::all(&target.id, &target.body).map(move |of| (at, of)));
        all.filter(|(_, frontend)| frontend.public.as_ref() == Some(address))
            .map(|(at, frontend)| (at, frontend.name.to_owned()))
            .collect()
    }

    /// Ends a stage: continues with the next one or an earlier one, or ends the migration.
    pub(super) fn end_stage(&mut self, now: Now, out: &mut Vec<ApplyOut>) {
        let failures: Vec<(Goal, String)> = self
            .tasks
            .iter()
            .filter_map(|task| match &task.progress {
                Progress::Failed(reason) => Some((task.goal.clone(), reason.clone())),
                Progress::Ready(_)
                | Progress::Reading(_)
                | Progress::Recording
                | Progress::Writing(_)
                | Progress::Polling(..)
                | Progress::Asking(..)
                | Progress::Reached => None,
            })
            .collect();
        if self.stage == Stage::Delete && self.is_in_use && self.rounds < DETACH_ROUNDS {
            self.rounds += 1;
            self.is_in_use = false;
            self.enter(Stage::DetachModels, now, out);
            return;
        }
        let is_taken = failures.iter().any(|(_, reason)| is_address_in_use(reason));
        let mut problems = Vec::new();
        for (goal, reason) in failures {
            let problem = format!("{}: {reason}", goal.object(&self.work));
            let frontends = match &goal {
                Goal::Free(target, address) => vec![(*target, address.frontend.clone())],
                Goal::Upgrade(id) => self.frontends_of(id),
                Goal::Inspect(_)
                | Goal::Static(_)
                | Goal::Unchanged(_)
                | Goal::Detach(..)
                | Goal::Instances(_)
                | Goal::Delete(_)
                | Goal::Build(_)
                | Goal::Convert(_)
                | Goal::Attach(..) => Vec::new(),
            };
            if frontends.is_empty() {
                problems.push(problem);
            } else {
                // The other frontends are built without these.
                self.unavailable.extend(frontends.into_iter().map(|frontend| (frontend, problem.clone())));
            }
        }
        if is_taken && self.checks < CHECK_ROUNDS {
            self.checks += 1;
            self.enter(Stage::CheckAddresses, now, out);
            return;
        }
        if !problems.is_empty() {
            self.stop(now, problems, out);
            return;
        }
        if self.stage == Stage::Compare && !self.journal.outage {
            (self.journal.outage, self.journal.done) = (true, false);
            self.record_again(now);
            return;
        }
        match self.following() {
            Some(stage) => self.enter(stage, now, out),
            None => self.finish(out),
        }
    }

    fn following(&self) -> Option<Stage> {
        let only_pools = !self.work.pools.is_empty();
        match self.stage {
            Stage::Inspect if only_pools => Some(Stage::Convert),
            Stage::DetachNodes if only_pools => Some(Stage::Prove),
            Stage::Inspect if self.alive.is_empty() => Some(Stage::CheckAddresses),
            Stage::Retake if self.builds_again => Some(Stage::BuildInternal),
            Stage::Journal
            | Stage::Inspect
            | Stage::StaticAddresses
            | Stage::HandOver
            | Stage::Compare
            | Stage::Convert
            | Stage::DetachModels
            | Stage::ListInstances
            | Stage::DetachNodes
            | Stage::Delete
            | Stage::CheckAddresses
            | Stage::BuildInternal
            | Stage::BuildPublic
            | Stage::AttachModels
            | Stage::ListAgain
            | Stage::AttachNodes
            | Stage::Retake
            | Stage::Prove
            | Stage::Close => self.stage.next(),
        }
    }

    fn enter(&mut self, stage: Stage, now: Now, out: &mut Vec<ApplyOut>) {
        if self.stage == Stage::Inspect {
            // References to load balancers that are already Standard are kept.
            self.removed_references.load_balancers.retain(|lb| !self.standard.contains_key(lb));
            self.past_return |= self.alive != self.work.basic;
        }
        self.stage = stage;
        if stage == Stage::HandOver {
            self.hand_over_until = (self.has_written && !self.past_return).then(|| now.plus(HAND_OVER));
        }
        if stage == Stage::Close {
            let is_done = self.unavailable.is_empty();
            if is_done != self.journal.done {
                self.journal.done = is_done;
                self.record_again(now);
            }
        }
        if stage == Stage::BuildInternal {
            self.builds_again = false;
        }
        if matches!(stage, Stage::ListInstances | Stage::ListAgain) {
            self.listed.clear();
        }
        let goals = self.goals();
        let task = |goal| match stage {
            Stage::Retake => Task::once_more(goal, now, self.retakes),
            Stage::Journal
            | Stage::Inspect
            | Stage::StaticAddresses
            | Stage::HandOver
            | Stage::Compare
            | Stage::Convert
            | Stage::DetachModels
            | Stage::ListInstances
            | Stage::DetachNodes
            | Stage::Delete
            | Stage::CheckAddresses
            | Stage::BuildInternal
            | Stage::BuildPublic
            | Stage::AttachModels
            | Stage::ListAgain
            | Stage::AttachNodes
            | Stage::Prove
            | Stage::Close => Task::new(goal, now),
        };
        self.tasks = goals.into_iter().map(task).collect();
        let is_handed_over = stage == Stage::HandOver && self.hand_over_until.is_none();
        let wished = if is_handed_over { self.wished_lease } else { stage.needs_lease() };
        if wished != self.wished_lease {
            self.wished_lease = wished;
            out.push(ApplyOut::Lease(wished));
        }
    }

    /// Returns the goals of the stage.
    fn goals(&self) -> Vec<Goal> {
        let work = &self.work;
        let internal = |internal: bool| {
            let all = work.targets.iter().enumerate();
            all.filter(move |(_, target)| target.public.is_empty() == internal).map(|(at, _)| Goal::Build(at))
        };
        let scale_sets =
            || work.scale_sets().chain(&self.named_by_errors).collect::<BTreeSet<_>>().into_iter().cloned();
        let interfaces = || {
            let all = work.members.iter().filter(|(_, member)| member.kind == MemberKind::NetworkInterface);
            all.map(|(id, _)| id.clone())
        };
        let converted = || work.pools.keys().cloned().map(Goal::Convert);
        let detach = |kind| move |id| Goal::Detach(kind, id);
        let attach = |kind| move |id| Goal::Attach(kind, id);
        match self.stage {
            Stage::Journal | Stage::HandOver | Stage::Close => Vec::new(),
            Stage::Inspect => {
                let targets = work.targets.iter().map(|target| &target.id).chain(work.pools.keys());
                work.basic
                    .iter()
                    .chain(targets)
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .cloned()
                    .map(Goal::Inspect)
                    .collect()
            }
            Stage::StaticAddresses => {
                let static_addresses =
                    work.addresses.iter().filter(|(_, address)| address.fate == AddressFate::Kept);
                static_addresses.map(|(id, _)| Goal::Static(id.clone())).collect()
            }
            Stage::Convert => converted().collect(),
            Stage::Compare => self.alive.iter().cloned().map(Goal::Unchanged).collect(),
            Stage::DetachModels => scale_sets().map(detach(MemberKind::Model)).collect(),
            Stage::ListInstances | Stage::ListAgain => scale_sets().map(Goal::Instances).collect(),
            Stage::DetachNodes => {
                let instances = self.listed.iter().cloned().map(detach(MemberKind::Instance));
                instances.chain(interfaces().map(detach(MemberKind::NetworkInterface))).collect()
            }
            Stage::Delete => self.alive.iter().cloned().map(Goal::Delete).collect(),
            Stage::CheckAddresses => self.unchecked(),
            Stage::BuildInternal => {
                internal(true).chain(work.addresses.keys().cloned().map(Goal::Upgrade)).collect()
            }
            Stage::BuildPublic => internal(false).collect(),
            Stage::AttachModels => work.scale_sets().cloned().map(attach(MemberKind::Model)).collect(),
            Stage::AttachNodes => {
                let instances = self.listed.iter().cloned().map(attach(MemberKind::Instance));
                instances.chain(interfaces().map(attach(MemberKind::NetworkInterface))).collect()
            }
            Stage::Retake => self.retaken(),
            Stage::Prove => internal(true).chain(internal(false)).chain(converted()).collect(),
        }
    }

    /// Returns the goals for private addresses that their new load balancers do not have yet.
    fn unchecked(&self) -> Vec<Goal> {
        let mut goals = Vec::new();
        for (at, target) in self.work.targets.iter().enumerate() {
            let live = self.standard.get(&target.id);
            let live = live.into_iter().flat_map(|body| Frontend::all(&target.id, body));
            let there: BTreeSet<_> = live.filter_map(|frontend| frontend.private).collect();
            // Addresses that are known to be in use must not delay the other frontends.
            let lacking = self.unavailable_of(at);
            let free = target
                .private
                .iter()
                .filter(|private| !there.contains(&private.address) && !lacking.contains(&private.frontend));
            goals.extend(free.map(|private| Goal::Free(at, private.clone())));
        }
        goals
    }

    /// Returns the goals that were not reached earlier.
    fn retaken(&self) -> Vec<Goal> {
        let mut goals = Vec::new();
        for (at, frontend) in self.unavailable.keys() {
            let target = &self.work.targets[*at];
            let private = target.private.iter().filter(|private| private.frontend == *frontend);
            goals.extend(private.map(|private| Goal::Free(*at, private.clone())));
            let public = Frontend::all(&target.id, &target.body).filter(|of| of.name == frontend);
            goals.extend(public.filter_map(|of| of.public).map(Goal::Upgrade));
        }
        goals
    }

    /// Ends with a guide. Before the outage, the journal is first stored with `done`, so that a new plan can be
    /// applied.
    pub(super) fn stop(&mut self, now: Now, problems: Vec<String>, out: &mut Vec<ApplyOut>) {
        let nodes = self.work.members.keys().chain(self.journal.later.keys()).map(ToString::to_string);
        let purpose = self.journal.inventory.cluster.purpose;
        let guide = Guide {
            purpose,
            stage: self.stage,
            past_return: self.past_return,
            may_be_detached: self.journal.outage,
            problems,
            nodes: nodes.collect(),
        };
        let is_stored = self.stage != Stage::Journal;
        if is_stored && purpose == Purpose::Standard && guide.is_before_outage() {
            self.is_stopping = true;
            self.journal.done = true;
            self.record_again(now);
            self.giving_up = Some(guide);
            return;
        }
        self.end(Outcome::Stopped(guide), out);
    }

    pub(super) fn finish(&mut self, out: &mut Vec<ApplyOut>) {
        let outcome = if self.unavailable.is_empty() {
            Outcome::Done
        } else {
            let lacking = self.unavailable.iter();
            Outcome::Incomplete(
                lacking.map(|((_, frontend), reason)| format!("{frontend}: {reason}")).collect(),
            )
        };
        self.end(outcome, out);
    }

    pub(super) fn end(&mut self, outcome: Outcome, out: &mut Vec<ApplyOut>) {
        self.is_finished = true;
        if self.wished_lease {
            self.wished_lease = false;
            out.push(ApplyOut::Lease(false));
        }
        out.push(ApplyOut::Finished(outcome));
    }
}
