//! The commands (docs/design/surface.md, commands). What they print is a [`Printable`]: the compiler finds text that is
//! not made safe.

/// One line of a text as [`format!`] makes it, safe to print: line breaks within it are escaped.
macro_rules! printable {
    ($($text:tt)*) => {
        model::redact::Printable::line(&format!($($text)*))
    };
}
pub(crate) use printable;

mod api_server;
mod atomic_file;
mod check;
mod check_config;
mod export;
mod files;
mod migrate;
mod observe;
mod pauses;
mod remedy;
mod restore;
mod retire;
mod run;
#[cfg(feature = "simulator")]
mod simulate;
mod snapshot;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use config::Report;
use model::redact::Printable;

/// Keeps Azure Load Balancer backend pools equal to what the Kubernetes cluster says.
#[derive(Parser, Debug)]
#[command(version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Runs the controller until SIGTERM or SIGINT.
    Run(RunArgs),
    /// Runs the controller against simulated Azure and Kubernetes, and reports how it did.
    #[cfg(feature = "simulator")]
    Simulate(Box<simulate::SimulateArgs>),
    /// Validates both configuration files and prints the effective configuration, secrets redacted.
    CheckConfig(check_config::CheckConfigArgs),
    /// Checks whether the controller could do its work here: rights, permissions, locks, clocks, load balancers and pools.
    /// Writes nothing anywhere.
    Check(check::CheckArgs),
    /// Stores every pool of the managed load balancers in a file, or compares such a file with what is there now.
    Snapshot(snapshot::SnapshotArgs),
    /// Puts the members of pools back to what a snapshot has, under the rules of `run`, and pauses everything for the
    /// replica that leads next.
    Restore(restore::RestoreArgs),
    /// Has a Deployment run no Pods, and waits until they have ended: before it is deleted together with their rights.
    Retire(retire::RetireArgs),
    /// Moves the cluster from Basic to Standard load balancers with all its addresses: plans first, then carries the plan out.
    MigrateBasicLb(Box<migrate::MigrateArgs>),
    /// Prints the version.
    Version,
}

/// Where the configuration stands.
#[derive(Args, Debug, Clone)]
pub struct Files {
    /// The cloud-controller-manager's cloud configuration, JSON or YAML [default: /etc/kubernetes/azure.json].
    #[arg(long, env = "POOL_CONTROLLER_CLOUD_CONFIG", value_name = "FILE")]
    pub cloud_config: Option<PathBuf>,
    /// Reads the cloud configuration from a Secret too, over that of the file, where there is one, as `cloudConfigType`
    /// says [default: kube-system/azure-cloud-provider].
    #[arg(
        long,
        env = "POOL_CONTROLLER_CLOUD_CONFIG_SECRET",
        value_name = "NAMESPACE/NAME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = files::SECRET
    )]
    pub cloud_config_secret: Option<files::SecretName>,
    /// This controller's own configuration, YAML; without it every key has its default.
    #[arg(long, env = "POOL_CONTROLLER_CONFIG")]
    pub config: Option<PathBuf>,
}

/// The flags of `run`.
#[derive(Args, Debug, Clone)]
pub struct RunArgs {
    #[command(flatten)]
    files: Files,
    /// The kubeconfig; without it the files of KUBECONFIG or `~/.kube/config`, else the pod's service account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Shows what would be written and writes nothing anywhere.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    export: export::ExportArgs,
}

/// Runs the command and gives the process's exit code: 1 after a failure that has been told, else what the command says.
#[must_use]
pub fn run(cli: Cli) -> ExitCode {
    let done = |result: anyhow::Result<()>| result.map(|()| ExitCode::SUCCESS);
    let ended = match cli.command {
        Command::Run(args) => run::run(&args),
        #[cfg(feature = "simulator")]
        Command::Simulate(args) => done(simulate::simulate(&args)),
        Command::CheckConfig(args) => done(check_config::check_config(&args)),
        Command::Check(args) => check::check(&args),
        Command::Snapshot(args) => snapshot::snapshot(&args),
        Command::Restore(args) => restore::restore(&args),
        Command::Retire(args) => retire::retire(&args),
        Command::MigrateBasicLb(args) => migrate::migrate(&args),
        Command::Version => {
            done(say([printable!("azure-backend-pool-controller {}", env!("CARGO_PKG_VERSION"))]))
        }
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            tell(failed(&error));
            ExitCode::FAILURE
        }
    }
}

/// What is said of a failure: one line, and one more for each problem of the configuration.
fn failed(error: &anyhow::Error) -> Vec<Printable> {
    match error.chain().find_map(|cause| cause.downcast_ref::<Report>()) {
        Some(report) => {
            let problems = report.problems();
            let plural = if problems.len() == 1 { "" } else { "s" };
            let head = printable!("error: the configuration has {} problem{plural}", problems.len());
            let problems = problems.iter().map(|problem| printable!("- {problem}"));
            [head].into_iter().chain(problems).collect()
        }
        None => vec![printable!("error: {error:#}")],
    }
}

/// Writes lines to standard output; a closed pipe is not an error.
fn say(lines: impl IntoIterator<Item = Printable>) -> anyhow::Result<()> {
    write(&Printable::joined(lines))
}

/// Writes a text to standard output; a closed pipe is not an error.
fn write(text: &Printable) -> anyhow::Result<()> {
    use std::io::{ErrorKind, Write, stdout};
    match stdout().write_all(text.as_str().as_bytes()).and_then(|()| stdout().flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("failed to write to standard output"))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes lines to standard error. Failures are ignored.
pub(crate) fn tell(lines: impl IntoIterator<Item = Printable>) {
    use std::io::{Write, stderr};
    drop(stderr().write_all(Printable::joined(lines).as_str().as_bytes()));
}
