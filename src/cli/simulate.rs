//! `simulate`: runs the unchanged controller as a child process with the simulator's ARM and Kubernetes
//! (docs/design/surface.md, Z2).

mod args;
mod progress;
mod report_files;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use model::redact::Printable;
use simulator::{
    Churn, Fakes, FileOptions, Files, LiveCcm, Pattern, Play, Process, Report, Reserved, RunInfo, Scenario,
    Settings, Watcher, World,
};
use tokio::signal::unix::{SignalKind, signal};

use self::args::ReportFormat;
use self::progress::ProgressDisplay;
use self::report_files::ReportFiles;
use super::{eprint_lines, print_lines, write};

pub(super) use self::args::SimulateArgs;

/// The time for the controller to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// The time for the controller to end.
const END_TIMEOUT: Duration = Duration::from_secs(35);
/// The time for the controller to become idle after every pool is in sync.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of lines that are repeated from the end of the controller's output.
const LAST_LINES: usize = 10;
/// A duration longer than any run.
const MAX_DURATION: Duration = Duration::from_secs(u32::MAX as u64);

/// Runs the simulation; fails if the controller has failed.
pub(super) fn simulate(args: &SimulateArgs) -> anyhow::Result<()> {
    if args.lists_names() {
        return print_lines(args::scenario_names());
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
        let simulation = Simulation::start(args).await?;
        if args.serve_only {
            return simulation.serve_only(args, stop).await;
        }
        // The files may be in the folder of the run, which exists only now.
        let reports = ReportFiles::open(args)?;
        simulation.run(args, &reports, stop).await
    })
}

/// The simulated servers and their world, and the files for the controller.
struct Simulation {
    /// The scenario before `--speed`.
    original_scenario: Scenario,
    /// The scenario at `--speed`.
    scenario: Scenario,
    fakes: Fakes,
    world: World,
    files: Files,
    folder: PathBuf,
    health: Reserved,
    admin: Reserved,
}

impl Simulation {
    async fn start(args: &SimulateArgs) -> anyhow::Result<Self> {
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
        let original_scenario = args.scenario()?;
        let scenario = original_scenario.clone().faster(args.speed);
        let overlay = Some(scenario.controller.clone());
        let options = FileOptions { health: health.address, admin: admin.address, overlay };
        let settings = Settings { arm: scenario.arm.clone(), ..Settings::default() };
        let fakes = Fakes::start(settings).await.context("failed to start the simulated servers")?;
        let world = World::new(scenario.size, args.seed);
        world.populate(&fakes, &simulator::vnet_id()).await;
        let files = Files::write(&folder, &fakes, &world, &options)
            .with_context(|| format!("failed to write configuration into {}", folder.display()))?;
        Ok(Self { original_scenario, scenario, fakes, world, files, folder, health, admin })
    }

    /// Runs the simulated servers without the controller, for `--serve-only` (Z2).
    async fn serve_only(self, args: &SimulateArgs, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let Files { kubeconfig, cloud_config, controller } = &self.files;
        let command = "azure-backend-pool-controller run";
        let (kubeconfig, cloud, config) =
            (kubeconfig.display(), cloud_config.display(), controller.display());
        print_lines([
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
        let live_ccm =
            LiveCcm::start_for_scenario(&self.fakes, &self.world, &self.scenario, args.seed, args.speed)
                .await;
        let pattern = match self.scenario.pattern {
            Pattern::Churn { rate, .. } => Pattern::Churn { rate, duration_us: us(MAX_DURATION) },
            other
            @ (Pattern::Burst | Pattern::Rollout { .. } | Pattern::Recreate { .. } | Pattern::Still) => other,
        };
        let churn = Churn::new(pattern, args.seed);
        let play = Play::new(&self.fakes, self.world.clone(), churn).await.with(&self.scenario.timetable());
        let playing = async {
            play.run(MAX_DURATION, |_| ()).await;
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

    async fn run(
        self,
        args: &SimulateArgs,
        reports: &ReportFiles,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let live_ccm =
            LiveCcm::start_for_scenario(&self.fakes, &self.world, &self.scenario, args.seed, args.speed)
                .await;
        let program = std::env::current_exe().context("failed to find this program")?;
        let log = self.log(args);
        let mut process = Process::start(&program, &self.files, log.as_deref())
            .with_context(|| format!("failed to start {}", program.display()))?;
        eprint_lines([printable!("configuration in {}", self.folder.display())]);
        if let Some(log) = &log {
            eprint_lines([printable!("the controller's log: {}", log.display())]);
        }
        let mut stop = std::pin::pin!(stop);
        let performed = tokio::select! {
            performed = self.play_scenario(args, &mut process, live_ccm.as_ref()) => performed,
            () = &mut stop => Err(anyhow::anyhow!("interrupted")),
        };
        let performed = match performed {
            Ok(report) => self.finish(args, reports, &report, &mut process, stop).await,
            Err(error) => Err(error),
        };
        let ended = process.stop(END_TIMEOUT).await;
        self.fakes.stop().await;
        performed.map_err(|error| match &log {
            Some(log) => {
                eprint_lines(last_output(log));
                error.context(format!("see {}", log.display()))
            }
            None => error,
        })?;
        let status = ended.context("failed to end the controller")?;
        if status.success() { Ok(()) } else { bail!("the controller ended with {status}") }
    }

    /// Returns the file of the controller's log; `None` for the terminal.
    fn log(&self, args: &SimulateArgs) -> Option<PathBuf> {
        if self.scenario.log_full {
            return Some(PathBuf::from("/dev/full"));
        }
        (!args.verbose).then(|| self.folder.join("service.log"))
    }

    /// Plays the scenario and returns the report; fails if the controller ends before.
    async fn play_scenario(
        &self,
        args: &SimulateArgs,
        process: &mut Process,
        live_ccm: Option<&LiveCcm>,
    ) -> anyhow::Result<Report> {
        process.ready(self.health.address, READY_TIMEOUT).await?;
        eprint_lines([printable!("the controller is ready; watch it at http://{}/", self.admin.address)]);
        let began_us = self.fakes.clock().now_us();
        let churn = Churn::new(self.scenario.pattern, args.seed);
        let play = Play::new(&self.fakes, self.world.clone(), churn).await.with(&self.scenario.timetable());
        let play = play.holding(process.control()).with_removal_delay(self.scenario.removal_delay());
        let watcher = Watcher::start(self.admin.address, self.health.address);
        let mut display = ProgressDisplay::new();
        let outcome = tokio::select! {
            outcome = play.run(self.scenario.settle, |progress| display.show(progress)) => outcome,
            ended = process.ended() => return Err(ended.into()),
        };
        display.finish();
        let run = RunInfo {
            scenario: &self.scenario,
            speed: args.speed,
            seed: args.seed,
            began_us,
            usage: process.usage(),
            manager: live_ccm.map(LiveCcm::sums),
        };
        let mut report = Report::gather(&self.fakes, &run, &self.world, outcome).await;
        let mut checks = tokio::select! {
            checks = watcher.rest(IDLE_TIMEOUT) => checks,
            ended = process.ended() => return Err(ended.into()),
        };
        checks.check_guards(&self.scenario.guarded);
        if let Some(log) = self.log(args).filter(|_| !self.scenario.log_full) {
            let text =
                std::fs::read_to_string(&log).with_context(|| format!("failed to read {}", log.display()))?;
            checks.check_log(&text, &self.scenario.errors);
        }
        report.checks = Some(checks);
        if args.compare_upstream {
            eprint_lines([printable!(
                "running the same scenario with cloud-provider-azure's updater, in simulated time"
            )]);
            report.upstream =
                Some(Box::new(Report::of_upstream(&self.original_scenario, &self.world, args.seed)));
        }
        Ok(report)
    }

    /// Writes the report, and keeps everything running until Ctrl-C unless `--exit-when-done` is set.
    async fn finish(
        &self,
        args: &SimulateArgs,
        reports: &ReportFiles,
        report: &Report,
        process: &mut Process,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        write_report(args, reports, report)?;
        if !args.exit_when_done {
            eprint_lines([
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
            (Some(limit), Some(elapsed)) if elapsed > limit.as_secs_f64() => {
                bail!("every pool was in sync after {elapsed:.3} s, later than --within {limit:?}")
            }
            (Some(_) | None, _) => Ok(()),
        }
    }
}

/// Returns the last lines of the log file that are no log lines, such as the error of the controller.
fn last_output(log: &Path) -> Vec<Printable> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let output: Vec<&str> = text.lines().filter(|line| !line.starts_with('{')).collect();
    let from = output.len().saturating_sub(LAST_LINES);
    output[from..].iter().map(|line| printable!("the controller: {line}")).collect()
}

fn write_report(args: &SimulateArgs, reports: &ReportFiles, report: &Report) -> anyhow::Result<()> {
    let text = match args.report {
        ReportFormat::Text => report.text(),
        ReportFormat::Json => report.json(),
        ReportFormat::Html => report.html(),
    };
    if let Some(html) = &reports.html {
        html.write(&report.html())?;
    }
    match &reports.output {
        Some(output) => output.write(&text),
        None => write(&Printable::lines(&text)),
    }
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
