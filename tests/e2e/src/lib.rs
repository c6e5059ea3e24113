//! Tests against your own cluster and subscription (docs/development/e2e-tests.md): the suite `cluster` checks that a
//! running controller does its work, and the suite `conformance` answers questions about Azure that public sources
//! leave open.

mod azure;
mod cluster;
mod conformance;
mod environment;
mod report;
mod wait;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use simulator::models::arm::{Latency, Settings};
use simulator::{Arm, Clock};

use azure::Azure;
use environment::Environment;
use report::{Case, Report};

pub use environment::{VARIABLES, Variable};

/// The selected tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Suite {
    /// A running controller in the cluster of KUBECONFIG.
    Cluster,
    /// Azure's treatment of requests.
    Conformance,
    /// Both.
    All,
}

/// Runs tests against your own cluster and subscription.
#[derive(Parser, Clone, Debug)]
#[command(name = "e2e")]
pub struct Options {
    /// The selected tests.
    #[arg(long, value_enum, default_value = "all")]
    pub suite: Suite,
    /// Runs only tests whose name contains this text.
    #[arg(long, default_value = "")]
    pub focus: String,
    /// Leaves out tests whose name contains this text.
    #[arg(long)]
    pub skip: Option<String>,
    /// Folder of the reports, which have a subfolder named after the cluster.
    #[arg(long, default_value = "target/e2e")]
    pub reports: PathBuf,
    /// Lists the selected tests and checks the variables; sends nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Runs the conformance suite against a simulated Azure, without a subscription.
    #[arg(long)]
    pub simulated: bool,
}

impl Options {
    /// Returns whether a test of this suite and name is selected.
    fn selects(&self, suite: Suite, name: &str) -> bool {
        let is_skipped = self.skip.as_deref().is_some_and(|skip| !skip.is_empty() && name.contains(skip));
        (self.suite == suite || self.suite == Suite::All) && name.contains(&self.focus) && !is_skipped
    }
}

/// Result of a run.
#[derive(Debug)]
pub struct RunResult {
    /// Text for the terminal.
    pub text: String,
    /// True if a test has failed.
    pub failed: bool,
}

/// Runs the selected tests with these environment variables, and writes the reports.
///
/// # Errors
/// A variable is missing or invalid, or a report cannot be written. A failed test is no error.
pub async fn run(options: &Options, variables: &BTreeMap<String, String>) -> anyhow::Result<RunResult> {
    let mut variables = variables.clone();
    let mut options = options.clone();
    let simulated =
        if options.simulated { Some(simulate(&mut options, &mut variables).await?) } else { None };
    let environment = Environment::read(&variables)?;
    let names = selected(&options);
    anyhow::ensure!(!names.is_empty(), "no test is selected; check --suite, --focus and --skip");
    if options.dry_run {
        let text = format!("{}\n{} tests would run on {environment}\n", names.join("\n"), names.len());
        return Ok(RunResult { text, failed: false });
    }
    let azure = Azure::new(&environment)?;
    let mut report = Report::new(&environment.cluster_name);
    if options.suite != Suite::Conformance {
        for case in cluster::run(&options, &environment, &azure).await {
            report.add(case);
        }
    }
    if options.suite != Suite::Cluster {
        let (cases, model_settings) = conformance::run(&options, &azure).await;
        cases.into_iter().for_each(|case: Case| report.add(case));
        report.model_settings = model_settings;
    }
    let folder = options.reports.join(&environment.cluster_name);
    report.write(&folder).with_context(|| format!("failed to write the reports to {}", folder.display()))?;
    drop(simulated);
    Ok(RunResult { text: report.text(&folder), failed: report.failed() })
}

/// Returns the names of the selected tests.
fn selected(options: &Options) -> Vec<String> {
    let cluster = cluster::names().into_iter().map(|name| (Suite::Cluster, name));
    let conformance = conformance::names().into_iter().map(|name| (Suite::Conformance, name));
    let all = cluster.chain(conformance);
    all.filter(|(suite, name)| options.selects(*suite, name)).map(|(_, name)| name.to_owned()).collect()
}

/// Starts a simulated Azure, and points the variables to it.
async fn simulate(options: &mut Options, variables: &mut BTreeMap<String, String>) -> anyhow::Result<Arm> {
    anyhow::ensure!(
        options.suite == Suite::Conformance,
        "--simulated is for --suite conformance; the cluster suite needs a controller (docs/development/e2e-tests.md)"
    );
    let settings = Settings {
        operation: Some(Latency::Fixed { us: 1_000_000 }),
        operation_retry_after_s: Some(1),
        ..Settings::default()
    };
    let set = [
        ("AZURE_RESOURCE_MANAGER_ENDPOINT", ""),
        ("AZURE_SUBSCRIPTION_ID", settings.subscription.as_str()),
        ("AZURE_RESOURCE_GROUP", settings.resource_group.as_str()),
        ("AZURE_LOCATION", settings.location.as_str()),
        ("CLUSTER_NAME", "simulated"),
    ];
    variables.extend(set.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let arm = Arm::start(settings, Clock::start()).await.context("failed to start the simulated Azure")?;
    variables.insert("AZURE_RESOURCE_MANAGER_ENDPOINT".to_owned(), arm.url.clone());
    Ok(arm)
}

#[cfg(test)]
mod tests;
