//! `migrate-basic-lb apply`: runs the machine of the migration with Azure, both Leases and the journal.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use actors::kubernetes::{Place, ask_lease};
use anyhow::{Context as _, bail};
use clap::Args;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use indicatif::{ProgressBar, ProgressStyle};
use migration::apply::{Apply, ApplyIn, ApplyOut, Outcome};
use migration::call::Reply;
use migration::inventory::CallId;
use migration::journal::Journal;
use migration::lease::{LeaseHold, LeaseIn, LeaseOut, LeaseParams};
use migration::plan::Plan;
use pool_core::arm::Permit;
use pool_core::ids::{AttemptId, CallId as LeaseCall, Epoch};
use pool_core::lease::{LeaseAnswer, LeaseName};
use pool_core::machine::{Machine as _, Now, earliest};
use tokio::signal::unix::{SignalKind, signal};

use super::journal::{Kind, Store};
use super::{Common, Outside, azure, facts};
use crate::cli::{say, tell};
use crate::service;
use crate::wiring::params;

/// The exit code that says that the migration has not reached its end.
pub(super) const NOT_DONE: u8 = 3;
/// How long both Leases are waited for at the end.
const RELEASE_WITHIN: Duration = Duration::from_secs(5);
/// The most time before the end of a hold at which a change may still be sent, as the controller has it.
const PERMIT_FOR: Duration = Duration::from_secs(60);

/// The flags of `apply`.
#[derive(Args, Debug)]
pub(super) struct ApplyArgs {
    #[command(flatten)]
    common: Common,
    /// The plan that `plan --out` has stored.
    #[arg(long, value_name = "FILE")]
    plan: PathBuf,
    /// The journal is stored in this file too, and read from it where the cluster has none.
    #[arg(long, value_name = "FILE", default_value = "migrate-basic-lb.journal.json")]
    journal: PathBuf,
}

/// Carries a plan out.
pub(super) fn apply(args: &ApplyArgs) -> anyhow::Result<ExitCode> {
    let config = args.common.load()?;
    let text = std::fs::read_to_string(&args.plan)
        .with_context(|| format!("failed to read {}; make one with `plan --out`", args.plan.display()))?;
    let plan: Plan = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a plan; make one with `plan --out`", args.plan.display()))?;
    if !plan.is_readable() {
        bail!("{} was made by another version; make a new plan with `plan --out`", args.plan.display());
    }
    service::in_system(async {
        let outside = args.common.open(config).await?;
        let mut run = Run::new(&outside);
        run.hold_own_lease().await?;
        let done = run.migrate(args, &plan).await;
        run.release().await;
        done
    })
}

/// What an answer is about.
enum Answered {
    Azure(CallId, Result<Reply, String>),
    Lease(LeaseName, LeaseCall, LeaseAnswer),
    Recorded(Result<(), String>),
}

pub(super) struct Run<'a> {
    outside: &'a Outside,
    own: LeaseHold,
    shared: LeaseHold,
    answers: FuturesUnordered<BoxFuture<'a, Answered>>,
    bar: Option<ProgressBar>,
}

impl<'a> Run<'a> {
    pub(super) fn new(outside: &'a Outside) -> Run<'a> {
        let own = LeaseParams {
            holder: format!("migrate-basic-lb_{}", uuid::Uuid::new_v4()).into(),
            duration: Duration::from_secs(45),
            renew_every: Duration::from_secs(5),
            // A leader that has just lost its hold may still have a PUT under way.
            foreign_for: Duration::from_secs(45 + 20),
            released_duration: Duration::from_secs(1),
            leaves_name: false,
        };
        let shared = LeaseParams {
            holder: Arc::from(pool_core::events::COMPONENT),
            duration: Duration::from_secs(60),
            renew_every: Duration::from_secs(15),
            foreign_for: pool_core::writer::FOREIGN_HOLD,
            released_duration: pool_core::writer::FOREIGN_HOLD,
            leaves_name: true,
        };
        let bar = std::io::stderr().is_terminal().then(|| {
            let style =
                ProgressStyle::with_template("[{bar:40}] {pos}/{len} {msg}").expect("the template is valid");
            ProgressBar::new(0).with_style(style)
        });
        Run {
            outside,
            own: LeaseHold::new(own),
            shared: LeaseHold::new(shared),
            answers: FuturesUnordered::new(),
            bar,
        }
    }

    /// Waits until no controller leads: this process then holds its Lease.
    pub(super) async fn hold_own_lease(&mut self) -> anyhow::Result<()> {
        let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
        self.lease(LeaseName::Own, LeaseIn::Want(true));
        while self.own.send_before().is_none() {
            let deadline = self.own.deadline();
            tokio::select! {
                Some(answered) = self.answers.next() => drop(self.on_lease(answered)),
                () = azure::until(self.outside.clock, deadline) => self.tick_leases(),
                _ = interrupt.recv() => bail!("interrupted before anything was changed"),
            }
        }
        Ok(())
    }

    /// Gives both Leases back.
    pub(super) async fn release(&mut self) {
        let clock = self.outside.clock;
        let end = clock.now().plus(RELEASE_WITHIN);
        self.lease(LeaseName::Shared, LeaseIn::Want(false));
        self.lease(LeaseName::Own, LeaseIn::Want(false));
        while !(self.own.is_free() && self.shared.is_free()) && clock.now() < end {
            let deadline = earliest(earliest(self.own.deadline(), self.shared.deadline()), Some(end));
            tokio::select! {
                Some(answered) = self.answers.next() => drop(self.on_lease(answered)),
                () = azure::until(clock, deadline) => self.tick_leases(),
            }
        }
    }

    async fn migrate(&mut self, args: &'a ApplyArgs, plan: &Plan) -> anyhow::Result<ExitCode> {
        let outside = self.outside;
        let store = Arc::new(Store::of(outside, Kind::Migration, &args.journal));
        let (journal, is_stored) = match store.read().await? {
            Some(journal) if journal.digest == plan.digest => (journal, true),
            Some(journal) if !journal.done => bail!(
                "another migration has begun and not ended: apply its plan, with digest {}, again first",
                journal.digest
            ),
            Some(_) | None => {
                let cluster = facts::read(outside, args.common.kubeconfig.as_ref()).await?;
                let inventory = azure::survey(&outside.arm, outside.clock, cluster).await;
                let now = Plan::of(&inventory, &plan.accepted);
                check(plan, &now)?;
                if now.is_empty() {
                    say([printable!("No Basic load balancer is in scope: there is nothing to migrate.")])?;
                    return Ok(ExitCode::SUCCESS);
                }
                (Journal::begun(inventory), false)
            }
        };
        tell(plan.notices.iter().map(|notice| printable!("{notice}")));
        let machine = Apply::new(journal, is_stored);
        match self.drive(machine, &store).await? {
            Outcome::Done => {
                say([
                    printable!("Every load balancer is migrated, and all addresses are as they were."),
                    printable!(
                        "Start the cloud-controller-manager now, with loadBalancerSku: standard, and configure outbound traffic."
                    ),
                ])?;
                Ok(ExitCode::SUCCESS)
            }
            Outcome::Incomplete(problems) => {
                say([printable!("Every load balancer is migrated, except for these frontends:")])?;
                say(problems.iter().map(|problem| printable!("- {problem}")))?;
                say([printable!("Remove the cause and run this command again: it tries them again.")])?;
                Ok(ExitCode::from(NOT_DONE))
            }
            Outcome::Stopped(guide) => {
                say(guide.lines().iter().map(|line| printable!("{line}")))?;
                say([printable!("The journal is in {} and in the cluster.", args.journal.display())])?;
                Ok(ExitCode::from(NOT_DONE))
            }
        }
    }

    pub(super) async fn drive(
        &mut self,
        mut machine: Apply,
        store: &Arc<Store<'a>>,
    ) -> anyhow::Result<Outcome> {
        let clock = self.outside.clock;
        let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
        let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
        let mut out = Vec::new();
        machine.step(clock.now(), ApplyIn::Start, &mut out);
        let mut held = false;
        loop {
            for said in std::mem::take(&mut out) {
                if let Some(outcome) = self.say(said, store) {
                    return Ok(outcome);
                }
            }
            let now_held = self.permit().is_some();
            if now_held != held {
                held = now_held;
                machine.step(clock.now(), ApplyIn::Lease(held), &mut out);
                continue;
            }
            let leases = earliest(self.own.deadline(), self.shared.deadline());
            let lapses = self.permit().map(|permit| permit.send_before);
            let deadline = earliest(machine.deadline(), earliest(leases, lapses));
            tokio::select! {
                Some(answered) = self.answers.next() => match self.on_lease(answered) {
                    Some(Answered::Azure(id, answer)) => machine.step(clock.now(), ApplyIn::Answer(id, answer), &mut out),
                    Some(Answered::Recorded(result)) => machine.step(clock.now(), ApplyIn::Recorded(result), &mut out),
                    Some(Answered::Lease(..)) | None => {}
                },
                () = azure::until(clock, deadline) => {
                    self.tick_leases();
                    machine.tick(clock.now(), &mut out);
                }
                _ = interrupt.recv() => machine.step(clock.now(), ApplyIn::Stop, &mut out),
                _ = terminate.recv() => machine.step(clock.now(), ApplyIn::Stop, &mut out),
            }
        }
    }

    fn say(&mut self, said: ApplyOut, store: &Arc<Store<'a>>) -> Option<Outcome> {
        match said {
            ApplyOut::Call(id, call) => {
                let (arm, permit) = (&self.outside.arm, self.permit());
                self.answers
                    .push(Box::pin(async move { Answered::Azure(id, azure::call(arm, call, permit).await) }));
            }
            ApplyOut::Record(journal) => {
                let store = Arc::clone(store);
                self.answers.push(Box::pin(async move {
                    let stored = store.write(&journal).await.map_err(|why| format!("{why:#}"));
                    if let Err(why) = &stored {
                        tell([printable!("the journal could not be stored: {why}")]);
                    }
                    Answered::Recorded(stored)
                }));
            }
            ApplyOut::Lease(wanted) => self.lease(LeaseName::Shared, LeaseIn::Want(wanted)),
            ApplyOut::Progress { stage, done, total } => self.show(stage.title(), done, total),
            ApplyOut::Finished(outcome) => return Some(outcome),
        }
        None
    }

    fn show(&self, title: &'static str, done: usize, total: usize) {
        match &self.bar {
            Some(bar) => {
                bar.set_length(total as u64);
                bar.set_position(done as u64);
                bar.set_message(title);
            }
            None => tell([printable!("{title}: {done} of {total}")]),
        }
    }

    /// Until when a change may be sent: as long as both Leases are ours.
    fn permit(&self) -> Option<Permit> {
        let now = self.outside.clock.now();
        let end = self.own.send_before()?.min(self.shared.send_before()?).min(now.plus(PERMIT_FOR));
        (now < end).then_some(Permit { attempt: AttemptId { epoch: Epoch(0), n: 0 }, send_before: end })
    }

    fn lease(&mut self, lease: LeaseName, input: LeaseIn) {
        let now = self.outside.clock.now();
        let mut out = Vec::new();
        match lease {
            LeaseName::Own => self.own.step(now, input, &mut out),
            LeaseName::Shared => self.shared.step(now, input, &mut out),
        }
        self.ask_leases(lease, out);
    }

    /// Takes in what is about a Lease, and gives the rest back.
    fn on_lease(&mut self, answered: Answered) -> Option<Answered> {
        match answered {
            Answered::Lease(lease, call, answer) => {
                self.lease(lease, LeaseIn::Answer(call, answer));
                None
            }
            Answered::Azure(..) | Answered::Recorded(_) => Some(answered),
        }
    }

    fn tick_leases(&mut self) {
        let now: Now = self.outside.clock.now();
        let (mut own, mut shared) = (Vec::new(), Vec::new());
        self.own.tick(now, &mut own);
        self.shared.tick(now, &mut shared);
        self.ask_leases(LeaseName::Own, own);
        self.ask_leases(LeaseName::Shared, shared);
    }

    fn ask_leases(&mut self, lease: LeaseName, out: Vec<LeaseOut>) {
        let places = params::leases(&self.outside.config);
        let place: Place = match lease {
            LeaseName::Own => places.own,
            LeaseName::Shared => places.shared,
        };
        for said in out {
            match said {
                LeaseOut::Ask(call, ask) => {
                    let (client, clock, place) =
                        (self.outside.kubernetes.clone(), self.outside.clock, place.clone());
                    self.answers.push(Box::pin(async move {
                        Answered::Lease(lease, call, ask_lease(client, place, clock, lease, ask).await)
                    }));
                }
                LeaseOut::HeldBy(holder) => {
                    tell([printable!(
                        "{holder} holds the Lease {place}: waiting until it is given back or expires"
                    )]);
                }
                LeaseOut::Failed(why) => tell([printable!("the Lease {place} could not be written: {why}")]),
                LeaseOut::Held(_) => {}
            }
        }
    }
}

/// Compares the plan with what follows from the live state.
fn check(plan: &Plan, now: &Plan) -> anyhow::Result<()> {
    if plan.digest != now.digest {
        bail!("what the plan was made from has changed since: make a new plan, read it, and apply that");
    }
    if !now.blockers.is_empty() {
        tell(
            now.blockers
                .iter()
                .map(|it| printable!("- {}: {}; remedy: {}", it.object, it.finding, it.remedy)),
        );
        bail!("{} findings block the migration", now.blockers.len());
    }
    Ok(())
}
