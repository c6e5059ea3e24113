//! `check`: checks the prerequisites of the controller (docs/design/surface.md, commands). It reads, reviews its rights
//! at the API server, and writes nothing.

mod access;
mod azure;
mod clocks;
mod finding;
mod kubernetes;
mod notes;
mod pools;
mod rights;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use actors::clock::Clock;
use anyhow::bail;
use clap::Args;
use config::Config;
use pool_core::comparison::End;

use self::finding::{Check, Findings, OutputFormat, Severity};
use super::api_server::ApiServer;
use super::plan::Plan;
use super::{Files, api_server, files, observe, write};
use crate::service::{self, Ended, Listeners, Options};
use crate::telemetry::Levels;
use crate::wiring::{ElectionStart, params};

/// The flags of `check`.
#[derive(Args, Debug)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    files: Files,
    /// The kubeconfig; by default the files of KUBECONFIG or `~/.kube/config`, else the Pod's service account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Format of the findings.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    /// Timeout of the comparison of all pools.
    #[arg(long, value_parser = config::parse_duration, default_value = "60s")]
    within: Duration,
}

/// Prints the findings; the exit code is 1 if any of them is a problem.
pub(super) fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let loaded = files::load_with(&args.files, args.kubeconfig.as_ref())?;
    let mut findings = Findings::default();
    if loaded.warnings.is_empty() {
        findings.ok(Check::Configuration, "both files are valid");
    }
    for warning in &loaded.warnings {
        let means = "the controller starts, with the described effect";
        findings.warning(Check::Configuration, warning.to_string(), means, "change the named key");
    }
    service::in_system(run_checks(args, loaded.config, &mut findings))?;
    write(&findings.render(args.output))?;
    Ok(match findings.worst() {
        Severity::Ok | Severity::Warning => ExitCode::SUCCESS,
        Severity::Problem => ExitCode::FAILURE,
    })
}

async fn run_checks(args: &CheckArgs, config: Config, findings: &mut Findings) -> anyhow::Result<()> {
    let clock = Clock::start();
    let is_reachable = match service::kubernetes_client(args.kubeconfig.as_ref()).await {
        Ok(client) => {
            kubernetes::check_kubernetes(&ApiServer(client), &params::leases(&config), clock, findings).await
        }
        Err(error) => {
            let remedy = "correct the named error, pass --kubeconfig, set KUBECONFIG, or run in a Pod with a service account";
            let what = api_server::chain(error.as_ref());
            findings.problem(Check::ApiServer, what, kubernetes::UNREACHABLE, remedy);
            false
        }
    };
    let balancers = match arm::Client::new(params::arm(&config, clock)) {
        Ok(client) => azure::check_azure(&client, &config, clock, findings).await,
        Err(error) => {
            let what = format!(
                "no ARM client with the identity {}: {:#}",
                config.identity.name(),
                anyhow::Error::new(error)
            );
            let means = "the controller does not start";
            findings.problem(
                Check::Token,
                what,
                means,
                "correct the named setting, in the file or the environment",
            );
            None
        }
    };
    let Some(balancers) = balancers.filter(|_| is_reachable) else {
        let what = "not checked, because the API server or ARM does not answer";
        let means = "the check could not determine which Services the controller would manage";
        findings.warning(Check::Candidates, what, means, "see the problems above");
        return Ok(());
    };
    let kubeconfig = args.kubeconfig.clone();
    let mut comparison = observe::comparison(&config, Duration::ZERO, args.within);
    let (levels, election) = (Levels::none(), ElectionStart::Immediate);
    let options = Options { config, kubeconfig, dry_run: true, levels, restoring: None, election };
    let watcher = async |handle| observe::until_compared(&handle, &mut comparison).await;
    let Ended { answer, handle: service } = service::serve(options, Listeners::Absent, watcher).await?;
    let Some(end) = answer else {
        let missing = observe::missing_text(&comparison.missing());
        bail!("interrupted before everything was compared: {missing}");
    };
    let plan = Plan::of(&comparison, end == End::Complete, service.clock);
    pools::report(&comparison, &plan, balancers, findings);
    Ok(())
}
