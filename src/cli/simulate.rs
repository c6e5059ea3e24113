//! `simulate`: the unchanged service as a child process against the simulator's ARM and Kubernetes
//! (docs/design/surface.md, Z2).

mod args;
mod progress;
mod sheets;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use model::redact::Printable;
use simulator::{
    Churn, Fakes, FileOptions, Files, LiveCcm, Pattern, Play, Process, Report, Reserved, RunInfo, Settings,
    Story, Watcher, World,
};
use tokio::signal::unix::{SignalKind, signal};

use self::args::Form;
use self::progress::Shown;
use self::sheets::Sheets;
use super::{say, tell, write};

pub(super) use self::args::SimulateArgs;

/// How long the controller may take to become ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long the controller may take to end.
const END_WITHIN: Duration = Duration::from_secs(35);
/// How long the controller may take, after every pool is right, until nothing waits any more.
const REST_WITHIN: Duration = Duration::from_secs(60);
/// The most lines of the service's last words that are repeated.
const LAST_LINES: usize = 10;
/// A time longer than any run.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Runs the simulation; fails when the controller has not done its job.
pub(super) fn simulate(args: &SimulateArgs) -> anyhow::Result<()> {
    if args.asks_for_names() {
        return say(args::names());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
        let stop = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let stage = Stage::set_up(args).await?;
        if args.serve_only {
            return stage.serve(args, stop).await;
        }
        // The folder of the run may hold them, so it is made first.
        let sheets = Sheets::open(args)?;
        stage.perform(args, &sheets, stop).await
    })
}

/// The fakes with their world, and the files for the controller.
struct Stage {
    /// As it is told.
    told: Story,
    /// As it is played, which may be faster.
    story: Story,
    fakes: Fakes,
    world: World,
    files: Files,
    folder: PathBuf,
    health: Reserved,
    admin: Reserved,
}

impl Stage {
    async fn set_up(args: &SimulateArgs) -> anyhow::Result<Self> {
        let folder = match &args.folder {
            Some(folder) => folder.clone(),
            None => {
                let prefix = "azure-backend-pool-controller-";
                let folder = tempfile::Builder::new().prefix(prefix).tempdir();
                folder.context("failed to make a folder for temporary files")?.keep()
            }
        };
        let health = Reserved::new(([127, 0, 0, 1], 0).into()).context("failed to find a free port")?;
        let admin = Reserved::new(args.listen)
            .with_context(|| format!("failed to find a free port for --listen {}", args.listen))?;
        let told = args.story()?;
        let story = told.clone().faster(args.speed);
        let overlay = Some(story.controller.clone());
        let options = FileOptions { health: health.address, admin: admin.address, overlay };
        let settings = Settings { arm: story.arm.clone(), ..Settings::default() };
        let fakes = Fakes::start(settings).await.context("failed to start the simulated servers")?;
        let world = World::new(story.size, args.seed);
        world.populate(&fakes, &simulator::vnet_id()).await;
        let files = Files::write(&folder, &fakes, &world, &options)
            .with_context(|| format!("failed to write configuration into {}", folder.display()))?;
        Ok(Self { told, story, fakes, world, files, folder, health, admin })
    }

    /// Z2's `--serve-only`.
    async fn serve(self, args: &SimulateArgs, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let Files { kubeconfig, cloud_config, controller } = &self.files;
        let command = "azure-backend-pool-controller run";
        let (kubeconfig, cloud, config) =
            (kubeconfig.display(), cloud_config.display(), controller.display());
        say([
            printable!("ARM          {}", self.fakes.arm_url),
            printable!("Kubernetes   {}", self.fakes.kubernetes_url),
            printable!("kubeconfig   {kubeconfig}"),
            printable!("cloud config {cloud}"),
            printable!("config       {config}"),
            printable!(""),
            printable!("{command} --kubeconfig {kubeconfig} --cloud-config {cloud} --config {config}"),
            printable!(""),
            printable!("Pods change until Ctrl-C."),
        ])?;
        let live_ccm = LiveCcm::beside(&self.fakes, &self.world, &self.story, args.seed, args.speed).await;
        let pattern = match self.story.pattern {
            Pattern::Churn { rate, .. } => Pattern::Churn { rate, duration_us: us(FOR_EVER) },
            other
            @ (Pattern::Burst | Pattern::Rollout { .. } | Pattern::Recreate { .. } | Pattern::Still) => other,
        };
        let churn = Churn::new(pattern, args.seed);
        let play = Play::new(&self.fakes, self.world.clone(), churn).await.with(&self.story.timetable());
        let playing = async {
            play.run(FOR_EVER, |_| ()).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = playing => {}
            () = stop => {}
        }
        drop(live_ccm);
        self.fakes.stop().await;
        Ok(())
    }

    async fn perform(
        self,
        args: &SimulateArgs,
        sheets: &Sheets,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let live_ccm = LiveCcm::beside(&self.fakes, &self.world, &self.story, args.seed, args.speed).await;
        let program = std::env::current_exe().context("failed to find this program")?;
        let log = self.log(args);
        let mut process = Process::start(&program, &self.files, log.as_deref())
            .with_context(|| format!("failed to start {}", program.display()))?;
        tell([printable!("configuration in {}", self.folder.display())]);
        if let Some(log) = &log {
            tell([printable!("the controller's log: {}", log.display())]);
        }
        let mut stop = std::pin::pin!(stop);
        let performed = tokio::select! {
            performed = self.watched(args, &mut process, live_ccm.as_ref()) => performed,
            () = &mut stop => Err(anyhow::anyhow!("interrupted")),
        };
        let performed = match performed {
            Ok(report) => self.conclude(args, sheets, &report, &mut process, stop).await,
            Err(error) => Err(error),
        };
        let ended = process.stop(END_WITHIN).await;
        self.fakes.stop().await;
        performed.map_err(|error| match &log {
            Some(log) => {
                tell(last_words(log));
                error.context(format!("see {}", log.display()))
            }
            None => error,
        })?;
        let status = ended.context("failed to end the controller")?;
        if status.success() { Ok(()) } else { bail!("the controller ended with {status}") }
    }

    /// Where the controller's log goes; `None`: through to the terminal.
    fn log(&self, args: &SimulateArgs) -> Option<PathBuf> {
        if self.story.log_full {
            return Some(PathBuf::from("/dev/full"));
        }
        (!args.verbose).then(|| self.folder.join("service.log"))
    }

    /// Plays the run, unless the controller ends before it.
    async fn watched(
        &self,
        args: &SimulateArgs,
        process: &mut Process,
        live_ccm: Option<&LiveCcm>,
    ) -> anyhow::Result<Report> {
        process.ready(self.health.address, READY_WITHIN).await?;
        tell([printable!("the controller is ready; watch it at http://{}/", self.admin.address)]);
        let began_us = self.fakes.clock().now_us();
        let churn = Churn::new(self.story.pattern, args.seed);
        let play = Play::new(&self.fakes, self.world.clone(), churn).await.with(&self.story.timetable());
        let play = play.holding(process.control()).with_removal_delay(self.story.removal_delay());
        let watcher = Watcher::start(self.admin.address, self.health.address);
        let mut shown = Shown::new();
        let outcome = tokio::select! {
            outcome = play.run(self.story.settle, |progress| shown.show(progress)) => outcome,
            ended = process.ended() => return Err(ended.into()),
        };
        shown.finish();
        let told = RunInfo {
            story: &self.story,
            speed: args.speed,
            seed: args.seed,
            began_us,
            usage: process.usage(),
            manager: live_ccm.map(LiveCcm::sums),
        };
        let mut report = Report::gather(&self.fakes, &told, &self.world, outcome).await;
        let mut checks = tokio::select! {
            checks = watcher.rest(REST_WITHIN) => checks,
            ended = process.ended() => return Err(ended.into()),
        };
        checks.check_guards(&self.story.guarded);
        if let Some(log) = self.log(args).filter(|_| !self.story.log_full) {
            let text =
                std::fs::read_to_string(&log).with_context(|| format!("failed to read {}", log.display()))?;
            checks.check_log(&text, &self.story.errors);
        }
        report.checks = Some(checks);
        if args.compare_upstream {
            tell([printable!(
                "playing the same story with cloud-provider-azure's updater, in simulated time"
            )]);
            report.upstream = Some(Box::new(Report::of_upstream(&self.told, &self.world, args.seed)));
        }
        Ok(report)
    }

    /// Hands the report out and, where asked for, leaves everything running until the operator ends it.
    async fn conclude(
        &self,
        args: &SimulateArgs,
        sheets: &Sheets,
        report: &Report,
        process: &mut Process,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        hand_out(args, sheets, report)?;
        if !args.exit_when_done {
            tell([
                printable!(
                    "everything keeps running: open http://{0}/, or send a request. The simulated API server accepts \
                     any bearer token:",
                    self.admin.address
                ),
                printable!(
                    "curl -H 'Authorization: Bearer simulator' -d '{{\"scope\": \"everything\"}}' \
                     http://{0}/api/v1/pause",
                    self.admin.address
                ),
                printable!("press Ctrl-C to stop"),
            ]);
            tokio::select! {
                () = stop => {}
                ended = process.ended() => return Err(ended.into()),
            }
        }
        if !report.passed() {
            bail!("the simulation failed: {}", report.verdict());
        }
        match (args.within, report.first_event_to_converged_seconds) {
            (Some(limit), Some(took)) if took > limit.as_secs_f64() => {
                bail!("every pool was right after {took:.3} s, later than --within {limit:?}")
            }
            (Some(_) | None, _) => Ok(()),
        }
    }
}

/// What the service said last in its log that is no log line: the error with which it ended. None if it said nothing.
fn last_words(log: &Path) -> Vec<Printable> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let words: Vec<&str> = text.lines().filter(|line| !line.starts_with('{')).collect();
    let from = words.len().saturating_sub(LAST_LINES);
    words[from..].iter().map(|line| printable!("the service: {line}")).collect()
}

fn hand_out(args: &SimulateArgs, sheets: &Sheets, report: &Report) -> anyhow::Result<()> {
    let text = match args.report {
        Form::Text => report.text(),
        Form::Json => report.json(),
        Form::Html => report.html(),
    };
    if let Some(html) = &sheets.html {
        html.fill(&report.html())?;
    }
    match &sheets.output {
        Some(output) => output.fill(&text),
        None => write(&Printable::lines(&text)),
    }
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
