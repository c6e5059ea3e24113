//! `simulate`: the unchanged service as a child process against the simulator's ARM and Kubernetes (design.md Z2).

mod progress;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use simulator::models::arm::{self, Fault, Latency};
use simulator::{Churn, Fakes, FileOptions, Files, Pattern, Play, Process, Report, Settings, Size, World};
use tokio::signal::unix::{SignalKind, signal};

use self::progress::Shown;
use super::{say, tell};

/// How long the service may take to become ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long the service may take to end.
const END_WITHIN: Duration = Duration::from_secs(35);
/// What the pools get on top of the duration to become right, where nothing else is said.
const SETTLE: Duration = Duration::from_secs(120);
/// A time that does not end while anybody watches.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// The flags of `simulate`.
#[derive(Args, Debug)]
pub(super) struct SimulateArgs {
    /// Services of type LoadBalancer with local traffic, each with a backend pool of its own.
    #[arg(long, default_value_t = 200)]
    services: usize,
    /// Load balancers, over which the Services are spread.
    #[arg(long, default_value_t = 5, value_parser = at_least_one)]
    load_balancers: usize,
    /// Nodes.
    #[arg(long, default_value_t = 50, value_parser = at_least_one)]
    nodes: usize,
    /// Pods behind each Service at the beginning.
    #[arg(long, default_value_t = 3, value_parser = at_least_one)]
    endpoints: usize,
    /// Gives nodes and Services both IP families.
    #[arg(long)]
    dual_stack: bool,
    /// How long pods keep changing.
    #[arg(long, default_value = "60s", value_parser = simulator::duration)]
    duration: Duration,
    /// Changes per second.
    #[arg(long, default_value_t = 5.0, value_parser = rate)]
    rate: f64,
    /// How pods change: evenly all the time, or every Service five times within one second.
    #[arg(long, value_enum, default_value_t = Changes::Churn)]
    pattern: Changes,
    /// The seed of everything that is random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long ARM takes to answer a read: a duration, or MEDIAN..P95.
    #[arg(long, default_value = "20ms", value_parser = simulator::latency)]
    arm_get_latency: Latency,
    /// How long ARM takes to answer a write.
    #[arg(long, default_value = "100ms", value_parser = simulator::latency)]
    arm_put_latency: Latency,
    /// How long the operation runs that a write starts; 0: the write is finished when it is answered.
    #[arg(long, default_value = "0", value_parser = simulator::latency)]
    arm_operation: Latency,
    /// The Retry-After of answers that started an operation, in seconds.
    #[arg(long, default_value_t = 10)]
    retry_after: u32,
    /// The service's members.removalDelay, where it is not the default.
    #[arg(long, value_parser = simulator::duration)]
    removal_delay: Option<Duration>,
    /// Misbehaviour of ARM on writes: every:N:STATUS, every:N:STATUS:RETRY-AFTER, every:N:lock:RETRY-AFTER or
    /// every:N:lost, with @LOAD-BALANCER behind it of that one alone. Repeatable.
    #[arg(long, value_parser = simulator::fault)]
    fault: Vec<Fault>,
    /// How long to wait, after the last change, until every pool is right [default: the duration and 120 s].
    #[arg(long, value_parser = simulator::duration)]
    settle: Option<Duration>,
    /// Fails when the last pool was not right this long after the first change.
    #[arg(long, value_parser = simulator::duration)]
    within: Option<Duration>,
    /// The form of the report.
    #[arg(long, value_enum, default_value_t = Form::Text)]
    report: Form,
    /// Writes the report to this file instead of standard output.
    #[arg(long)]
    output: Option<PathBuf>,
    /// Ends after the report instead of leaving everything running until Ctrl-C.
    #[arg(long)]
    exit_when_done: bool,
    /// Where the service's admin API listens.
    #[arg(long, default_value = "127.0.0.1:8081")]
    listen: SocketAddr,
    /// Keys of controller.yaml, laid over those of the simulation.
    #[arg(long)]
    controller_config: Option<PathBuf>,
    /// Where configuration and log are written [default: a new folder for temporary files].
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Shows the service's log instead of writing it to a file.
    #[arg(long)]
    verbose: bool,
    /// Starts ARM and Kubernetes alone, for a service that you start; pods change until Ctrl-C.
    #[arg(long)]
    serve_only: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Changes {
    Churn,
    Burst,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Json,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number: usize = text.parse().map_err(|_| "not a whole number".to_owned())?;
    if number == 0 { Err("must be at least 1".to_owned()) } else { Ok(number) }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=100_000.0).contains(&rate) { Ok(rate) } else { Err("must be between 0 and 100000".to_owned()) }
}

/// Runs the simulation; fails when the service has not done its job.
pub(super) fn simulate(args: &SimulateArgs) -> anyhow::Result<()> {
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
        if args.serve_only { stage.serve(args, stop).await } else { stage.perform(args, stop).await }
    })
}

/// The fakes with their world, and the files for the service.
struct Stage {
    fakes: Fakes,
    world: World,
    files: Files,
    folder: PathBuf,
    health: SocketAddr,
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
        let port = simulator::free_port().context("failed to find a free port")?;
        let health = SocketAddr::from(([127, 0, 0, 1], port));
        let options = FileOptions { health, admin: args.listen, overlay: Some(overlay(args)?) };
        let fakes = Fakes::start(settings(args)).await.context("failed to start the simulated servers")?;
        let world = World::new(size(args), args.seed);
        world.populate(&fakes, &simulator::vnet_id()).await;
        let files = Files::write(&folder, &fakes, &world, &options)
            .with_context(|| format!("failed to write configuration into {}", folder.display()))?;
        Ok(Self { fakes, world, files, folder, health })
    }

    /// Z2's `--serve-only`.
    async fn serve(self, args: &SimulateArgs, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let Files { kubeconfig, cloud_config, controller } = &self.files;
        say(&format!(
            "ARM          {}\nKubernetes   {}\nkubeconfig   {}\ncloud config {}\nconfig       {}\n\n\
             azure-backend-pool-controller run --kubeconfig {} --cloud-config {} --config {}\n\n\
             Pods change until Ctrl-C.\n",
            self.fakes.arm_url,
            self.fakes.kubernetes_url,
            kubeconfig.display(),
            cloud_config.display(),
            controller.display(),
            kubeconfig.display(),
            cloud_config.display(),
            controller.display(),
        ))?;
        let churn = Churn::new(pattern(args, FOR_EVER), args.seed);
        let play = Play::new(&self.fakes, self.world.clone(), churn).await;
        let playing = async {
            play.run(FOR_EVER, |_| ()).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = playing => {}
            () = stop => {}
        }
        self.fakes.stop().await;
        Ok(())
    }

    async fn perform(self, args: &SimulateArgs, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let program = std::env::current_exe().context("failed to find this program")?;
        let log = (!args.verbose).then(|| self.folder.join("service.log"));
        let mut process = Process::start(&program, &self.files, log.as_deref())
            .with_context(|| format!("failed to start {}", program.display()))?;
        tell(&format!("configuration in {}\n", self.folder.display()));
        if let Some(log) = &log {
            tell(&format!("the service's log is {}\n", log.display()));
        }
        let mut stop = std::pin::pin!(stop);
        let performed = tokio::select! {
            performed = self.watched(args, &mut process) => performed,
            () = &mut stop => Err(anyhow::anyhow!("interrupted")),
        };
        let performed = match performed {
            Ok(report) => self.conclude(args, &report, &mut process, stop).await,
            Err(error) => Err(error),
        };
        let ended = process.stop(END_WITHIN).await;
        self.fakes.stop().await;
        performed.map_err(|error| match &log {
            Some(log) => error.context(format!("see {}", log.display())),
            None => error,
        })?;
        let status = ended.context("failed to end the service")?;
        if status.success() { Ok(()) } else { bail!("the service ended with {status}") }
    }

    /// Plays the run, unless the service ends before it.
    async fn watched(&self, args: &SimulateArgs, process: &mut Process) -> anyhow::Result<Report> {
        process.ready(self.health, READY_WITHIN).await?;
        tell(&format!("the service is ready; its state is at http://{}/api/v1/status\n", args.listen));
        let began_us = self.fakes.clock().now_us();
        let churn = Churn::new(pattern(args, args.duration), args.seed);
        let play = Play::new(&self.fakes, self.world.clone(), churn).await;
        let settle = args.settle.unwrap_or(args.duration + SETTLE);
        let mut shown = Shown::new();
        let outcome = tokio::select! {
            outcome = play.run(settle, |progress| shown.show(progress)) => outcome,
            ended = process.ended() => return Err(ended.into()),
        };
        shown.finish();
        let usage = process.usage();
        Ok(Report::gather(&self.fakes, &self.world, outcome, usage, args.seed, began_us).await)
    }

    /// Hands the report out and, where asked for, leaves everything running until somebody ends it.
    async fn conclude(
        &self,
        args: &SimulateArgs,
        report: &Report,
        process: &mut Process,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        hand_out(args, report)?;
        if !args.exit_when_done {
            tell(&format!(
                "everything goes on; http://{}/api/v1/status shows the service; Ctrl-C ends it\n",
                args.listen
            ));
            tokio::select! {
                () = stop => {}
                ended = process.ended() => return Err(ended.into()),
            }
        }
        if !report.passed() {
            bail!("the service has not done its job");
        }
        match (args.within, report.first_event_to_converged_seconds) {
            (Some(limit), Some(took)) if took > limit.as_secs_f64() => {
                bail!("every pool was right after {took:.3} s, later than --within {limit:?}")
            }
            (Some(_) | None, _) => Ok(()),
        }
    }
}

fn hand_out(args: &SimulateArgs, report: &Report) -> anyhow::Result<()> {
    let text = match args.report {
        Form::Text => report.text(),
        Form::Json => report.json(),
    };
    match &args.output {
        Some(path) => write(path, &text),
        None => say(&text),
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))?;
    tell(&format!("the report is {}\n", path.display()));
    Ok(())
}

fn size(args: &SimulateArgs) -> Size {
    Size {
        services: args.services,
        load_balancers: args.load_balancers,
        nodes: args.nodes,
        endpoints: args.endpoints,
        dual_stack: args.dual_stack,
    }
}

fn settings(args: &SimulateArgs) -> Settings {
    let operation = match args.arm_operation {
        Latency::Fixed { us: 0 } => None,
        other @ (Latency::Fixed { .. } | Latency::LogNormal { .. }) => Some(other),
    };
    let arm = arm::Settings {
        seed: args.seed,
        get_latency: args.arm_get_latency,
        put_latency: args.arm_put_latency,
        operation,
        operation_retry_after_s: Some(args.retry_after),
        faults: args.fault.clone(),
        ..arm::Settings::default()
    };
    Settings { arm, ..Settings::default() }
}

fn pattern(args: &SimulateArgs, duration: Duration) -> Pattern {
    match args.pattern {
        Changes::Churn if args.rate == 0.0 => Pattern::Still,
        Changes::Churn => Pattern::Churn {
            rate: args.rate,
            duration_us: u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
        },
        Changes::Burst => Pattern::Burst,
    }
}

/// What goes over the simulation's controller.yaml: the file of the command line, and flags that stand for keys.
fn overlay(args: &SimulateArgs) -> anyhow::Result<Value> {
    let mut overlay = match &args.controller_config {
        Some(path) => {
            let text = std::fs::read_to_string(path);
            let text = text.with_context(|| format!("failed to read {}", path.display()))?;
            FileOptions::overlay(&text).with_context(|| format!("failed to use {}", path.display()))?
        }
        None => json!({}),
    };
    if let Some(delay) = args.removal_delay {
        overlay["members"]["removalDelay"] = format!("{}ms", delay.as_millis()).into();
    }
    Ok(overlay)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SimulateArgs,
    }

    fn args(line: &[&str]) -> SimulateArgs {
        let words = ["simulate"].into_iter().chain(line.iter().copied());
        Line::try_parse_from(words).unwrap().args
    }

    #[test]
    fn z2_without_flags_writes_are_synchronous_and_the_configuration_is_the_default() {
        let args = args(&[]);
        assert_eq!(settings(&args).arm.operation, None);
        assert_eq!(size(&args), Size::default());
        assert_eq!(overlay(&args).unwrap(), json!({}));
        let expected = Pattern::Churn { rate: 5.0, duration_us: 60_000_000 };
        assert_eq!(pattern(&args, args.duration), expected);
    }

    #[test]
    fn z2_flags_reach_arm_and_the_pattern() {
        let line =
            ["--arm-operation", "5s..20s", "--retry-after", "1", "--fault", "every:20:409", "--rate", "0"];
        let args = args(&line);
        let arm = settings(&args).arm;
        let operation = Latency::LogNormal { median_us: 5_000_000, p95_us: 20_000_000 };
        assert_eq!((arm.operation, arm.operation_retry_after_s), (Some(operation), Some(1)));
        assert_eq!((arm.faults.len(), arm.faults[0].every), (1, 20));
        assert_eq!(pattern(&args, args.duration), Pattern::Still);
    }

    #[test]
    fn z2_the_removal_delay_of_the_command_line_wins_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("controller.yaml");
        std::fs::write(&file, "members: {removalDelay: 9s, add: ready}\n").unwrap();
        let file = file.to_str().unwrap();
        let args = args(&["--controller-config", file, "--removal-delay", "0"]);
        assert_eq!(overlay(&args).unwrap(), json!({"members": {"removalDelay": "0ms", "add": "ready"}}));
    }
}
