//! `check`: whether the controller could do its work here (docs/design/surface.md, commands). It reads, asks the API
//! server about rights, and writes nothing anywhere.

mod access;
mod azure;
mod clocks;
mod finding;
mod kubernetes;
mod notes;
mod pools;
mod rights;
mod sources;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use actors::clock::Clock;
use anyhow::bail;
use clap::Args;
use config::Config;

use self::finding::{Check, Findings, Form, Severity};
use super::api_server::ApiServer;
use super::{Files, api_server, files, observe, write};
use crate::service::{self, Ended, Listeners, Options};
use crate::telemetry::Levels;
use crate::wiring::{Election, params};

/// The flags of `check`.
#[derive(Args, Debug)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    files: Files,
    /// The kubeconfig; without it the files of KUBECONFIG or `~/.kube/config`, else the pod's service account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// How the findings are printed.
    #[arg(long, value_enum, default_value_t = Form::Text)]
    output: Form,
    /// How long everything may take to be compared once.
    #[arg(long, value_parser = config::parse_duration, default_value = "60s")]
    within: Duration,
}

/// Prints the findings; exit code 1 says that one of them is a problem.
pub(super) fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let loaded = files::load_with(&args.files, args.kubeconfig.as_ref())?;
    let mut findings = Findings::default();
    if loaded.warnings.is_empty() {
        findings.ok(Check::Configuration, "both files are valid");
    }
    for warning in &loaded.warnings {
        let means = "the controller starts, and does what is said there";
        findings.warning(Check::Configuration, warning.to_string(), means, "change the key that is named");
    }
    service::in_system(look(args, loaded.config, &mut findings))?;
    write(&findings.shown(args.output))?;
    Ok(match findings.worst() {
        Severity::Ok | Severity::Warning => ExitCode::SUCCESS,
        Severity::Problem => ExitCode::FAILURE,
    })
}

async fn look(args: &CheckArgs, config: Config, findings: &mut Findings) -> anyhow::Result<()> {
    let clock = Clock::start();
    let answers = match service::kubernetes_client(args.kubeconfig.as_ref()).await {
        Ok(client) => kubernetes::look(&ApiServer(client), &params::leases(&config), clock, findings).await,
        Err(why) => {
            let remedy = "correct what the error names, pass --kubeconfig, set KUBECONFIG, or run in a pod with a service account";
            let what = api_server::chain(why.as_ref());
            findings.problem(Check::ApiServer, what, kubernetes::UNREACHABLE, remedy);
            false
        }
    };
    let found = match arm::Client::new(params::arm(&config, clock)) {
        Ok(client) => azure::look(&client, &config, clock, findings).await,
        Err(why) => {
            let what = format!(
                "no ARM client with the identity {}: {:#}",
                config.identity.name(),
                anyhow::Error::new(why)
            );
            let means = "the controller does not start";
            findings.problem(
                Check::Token,
                what,
                means,
                "change what is named there, in the file or the environment",
            );
            None
        }
    };
    let Some(found) = found.filter(|_| answers) else {
        let what = "not looked at, because the API server or ARM does not answer us";
        let means = "it is not known which Services the controller would serve";
        findings.warning(Check::Candidates, what, means, "see the problems above");
        return Ok(());
    };
    let kubeconfig = args.kubeconfig.clone();
    let mut comparison = observe::comparison(&config, Duration::ZERO, args.within);
    let (levels, election) = (Levels::none(), Election::AtOnce);
    let options = Options { config, kubeconfig, dry_run: true, levels, restoring: None, election };
    let watcher = async |sight| observe::until_compared(&sight, &mut comparison).await;
    let Ended { answer, .. } = service::serve(options, Listeners::Absent, watcher).await?;
    let Some(end) = answer else {
        let missing = observe::told(&comparison.missing());
        bail!("interrupted before everything was compared: {missing}");
    };
    pools::tell(&comparison, end, found, findings);
    sources::tell(&comparison, findings);
    Ok(())
}
