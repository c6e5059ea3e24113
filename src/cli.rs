//! The commands (docs/design/surface.md, commands). They print only [`Printable`]s, so that the compiler finds text
//! that is not safe to print.

/// Formats one line as [`format!`] does, and makes it safe to print: line breaks within it are escaped.
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
mod plan;
mod remedy;
mod restore;
mod retire;
mod run;
#[cfg(feature = "simulator")]
mod simulate;
mod snapshot;

use std::path::PathBuf;
use std::process::ExitCode;

use actors::kubernetes::NamespacedName;
use clap::{Args, Parser, Subcommand};
use config::Report;
use model::redact::Printable;

/// Keeps Azure Load Balancer backend pools in sync with the endpoints of a Kubernetes cluster.
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
    /// Runs the controller against simulated Azure and Kubernetes, and reports the results.
    #[cfg(feature = "simulator")]
    Simulate(Box<simulate::SimulateArgs>),
    /// Validates both configuration files and prints the effective configuration, secrets redacted.
    CheckConfig(check_config::CheckConfigArgs),
    /// Checks the prerequisites: Kubernetes RBAC, Azure permissions, resource locks, clocks, load balancers and pools.
    /// Writes nothing.
    Check(check::CheckArgs),
    /// Stores all pools of the managed load balancers in a file, or compares such a file with the current pools.
    Snapshot(snapshot::SnapshotArgs),
    /// Restores the members of pools from a snapshot. It writes as `run` does, without guards, and pauses everything
    /// first, so that no controller undoes the restore.
    Restore(restore::RestoreArgs),
    /// Scales a Deployment to 0 and waits until its Pods have ended. Run it before you delete the Deployment and its RBAC.
    Retire(retire::RetireArgs),
    /// Migrates the cluster from Basic to Standard load balancers and keeps its addresses: plans first, then applies the
    /// plan.
    MigrateBasicLb(Box<migrate::MigrateArgs>),
    /// Prints the version.
    Version,
}

/// The sources of the configuration.
#[derive(Args, Debug, Clone)]
pub struct Files {
    /// The cloud-controller-manager's cloud configuration, JSON or YAML [default: /etc/kubernetes/azure.json].
    #[arg(long, env = "POOL_CONTROLLER_CLOUD_CONFIG", value_name = "FILE")]
    pub cloud_config: Option<PathBuf>,
    /// Also reads the cloud configuration from a Secret, with the precedence of `cloudConfigType` in the file
    /// [default: kube-system/azure-cloud-provider].
    #[arg(
        long,
        env = "POOL_CONTROLLER_CLOUD_CONFIG_SECRET",
        value_name = "NAMESPACE/NAME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = files::SECRET,
        value_parser = files::secret_name
    )]
    pub cloud_config_secret: Option<NamespacedName>,
    /// The controller's own configuration, YAML; without it, all keys have their defaults.
    #[arg(long, env = "POOL_CONTROLLER_CONFIG")]
    pub config: Option<PathBuf>,
}

/// The flags of `run`.
#[derive(Args, Debug, Clone)]
pub struct RunArgs {
    #[command(flatten)]
    files: Files,
    /// The kubeconfig; by default the files of KUBECONFIG or `~/.kube/config`, else the Pod's service account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Shows what would be written, and writes nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    export: export::ExportArgs,
}

/// Runs the command and returns the process's exit code: 1 after a failure, which is printed, else that of the command.
#[must_use]
pub fn run(cli: Cli) -> ExitCode {
    let success = |result: anyhow::Result<()>| result.map(|()| ExitCode::SUCCESS);
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
        #[cfg(feature = "simulator")]
        Command::Simulate(args) => success(simulate::simulate(&args)),
        Command::CheckConfig(args) => success(check_config::check_config(&args)),
        Command::Check(args) => check::check(&args),
        Command::Snapshot(args) => snapshot::snapshot(&args),
        Command::Restore(args) => restore::restore(&args),
        Command::Retire(args) => retire::retire(&args),
        Command::MigrateBasicLb(args) => migrate::migrate(&args),
        Command::Version => {
            success(print_lines([printable!("azure-backend-pool-controller {}", env!("CARGO_PKG_VERSION"))]))
        }
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprint_lines(failure_lines(&error));
            ExitCode::FAILURE
        }
    }
}

/// Returns the lines about a failure: one, and one for each problem of the configuration.
fn failure_lines(error: &anyhow::Error) -> Vec<Printable> {
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
fn print_lines(lines: impl IntoIterator<Item = Printable>) -> anyhow::Result<()> {
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
pub(crate) fn eprint_lines(lines: impl IntoIterator<Item = Printable>) {
    use std::io::{Write, stderr};
    drop(stderr().write_all(Printable::joined(lines).as_str().as_bytes()));
}
