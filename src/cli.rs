//! The commands (design.md 12).

mod check_config;
mod files;
mod run;
mod simulate;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

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
    Simulate(Box<simulate::SimulateArgs>),
    /// Validates both configuration files and prints the effective configuration, secrets redacted.
    CheckConfig(Files),
    /// Prints the version.
    Version,
}

/// Where the configuration stands.
#[derive(Args, Debug, Clone)]
pub struct Files {
    /// The cloud-controller-manager's cloud configuration, JSON or YAML.
    #[arg(long, env = "POOL_CONTROLLER_CLOUD_CONFIG", default_value = "/etc/kubernetes/azure.json")]
    pub cloud_config: PathBuf,
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
}

/// Runs the command and gives the process's exit code: 0, or 1 after a failure that has been told.
#[must_use]
pub fn run(cli: Cli) -> ExitCode {
    let done = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Simulate(args) => simulate::simulate(&args),
        Command::CheckConfig(files) => check_config::check_config(&files),
        Command::Version => say(&format!("azure-backend-pool-controller {}\n", env!("CARGO_PKG_VERSION"))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("error: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Writes to standard output; a closed pipe is no failure.
fn say(text: &str) -> anyhow::Result<()> {
    use std::io::{ErrorKind, Write, stdout};
    match stdout().write_all(text.as_bytes()).and_then(|()| stdout().flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes to standard error; there is nobody to tell when that fails.
fn tell(text: &str) {
    use std::io::{Write, stderr};
    drop(stderr().write_all(text.as_bytes()));
}
