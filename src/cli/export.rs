//! `run --dry-run --export`: the changes that the controller would make, with their reasons, for operators and
//! pipelines (C4). The export uses only the published snapshot, and writes only the file.

use std::convert::Infallible;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use model::machine::Machine as _;
use model::redact::Printable;
use pool_core::comparison::{Comparison, End, In};

use super::atomic_file::{Existing, Readers, can_write, write_atomically};
use super::observe;
use super::plan::Plan;
use super::write;
use crate::service::{self, Ended, Listeners, Options, ServiceHandle};

/// The minimum time between two versions of a file.
const REPLACE_INTERVAL: Duration = Duration::from_secs(1);
/// Exit code if changes are pending.
const PENDING: u8 = 3;
/// File name that means standard output.
const STANDARD_OUTPUT: &str = "-";

/// The flags of `run` that belong to the export.
#[derive(Args, Debug, Clone)]
pub(super) struct ExportArgs {
    /// Writes the changes that a run without --dry-run would make, with their reasons, to this file, and updates it
    /// whenever they change; `-` writes them to standard output, once at the end.
    #[arg(long, value_name = "FILE|-", requires = "dry_run")]
    export: Option<String>,
    /// Output format of the export.
    #[arg(long, value_enum, default_value_t = ExportFormat::Json, requires = "export")]
    output: ExportFormat,
    /// Ends when all pools were compared once, and opens no listener. Exit code 0: no change; 3: something would change.
    #[arg(long, requires = "export")]
    until_synced: bool,
    /// Timeout of `--until-synced`.
    #[arg(long, value_parser = config::parse_duration, default_value = "5m", requires = "until_synced")]
    within: Duration,
}

/// Output format of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ExportFormat {
    /// For operators.
    Text,
    /// For programs.
    Json,
}

/// Destination and format of an export.
struct Export<'a> {
    destination: &'a str,
    format: ExportFormat,
}

impl ExportArgs {
    /// Returns whether an export is requested.
    pub(super) fn is_requested(&self) -> bool {
        self.export.is_some()
    }
}

/// Runs the controller without writes, and exports what it would write.
pub(super) fn run(options: Options, args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let export =
        Export { destination: args.export.as_deref().unwrap_or(STANDARD_OUTPUT), format: args.output };
    if export.destination != STANDARD_OUTPUT {
        can_write(Path::new(export.destination), Existing::Replace)?;
    }
    let removal_delay = options.config.controller.members.removal_delay;
    let mut comparison = observe::comparison(&options.config, removal_delay, args.within);
    if !args.until_synced {
        let watcher = async |service: ServiceHandle| export.write_repeatedly(&service, &mut comparison).await;
        let Ended { answer, handle: service } =
            service::in_system(service::serve(options, Listeners::Open, watcher))?;
        answer.transpose()?;
        observe_snapshot(&service, &mut comparison);
        export.write(&Plan::of(&comparison, comparison.is_decided(service.clock.now()), service.clock))?;
        return Ok(ExitCode::SUCCESS);
    }
    let watcher = async |service: ServiceHandle| observe::until_compared(&service, &mut comparison).await;
    let Ended { answer, handle: service } =
        service::in_system(service::serve(options, Listeners::Absent, watcher))?;
    let missing = observe::missing_text(&comparison.missing());
    let Some(end) = answer else { bail!("interrupted before everything was compared: {missing}") };
    let plan = Plan::of(&comparison, end == End::Complete, service.clock);
    export.write(&plan)?;
    match end {
        End::TimedOut => {
            bail!("not everything was compared within {:?}: {missing}; the log says more", args.within)
        }
        End::Complete if plan.is_pending() => Ok(ExitCode::from(PENDING)),
        End::Complete => Ok(ExitCode::SUCCESS),
    }
}

/// Feeds the published snapshot to the comparison.
fn observe_snapshot(service: &ServiceHandle, comparison: &mut Comparison) {
    // The comparison was not started, so it has no output.
    comparison.step(service.clock.now(), In::Snapshot(service.published.load_full()), &mut Vec::new());
}

impl Export<'_> {
    /// Writes the file again whenever the plan has changed; returns only if that fails.
    async fn write_repeatedly(
        &self,
        service: &ServiceHandle,
        comparison: &mut Comparison,
    ) -> anyhow::Result<Infallible> {
        let mut written = None;
        loop {
            observe_snapshot(service, comparison);
            let state = (comparison.snapshot().at, comparison.is_decided(service.clock.now()));
            if self.destination != STANDARD_OUTPUT && written != Some(state) {
                self.write(&Plan::of(comparison, state.1, service.clock))?;
                written = Some(state);
            }
            tokio::time::sleep(REPLACE_INTERVAL).await;
        }
    }

    fn write(&self, plan: &Plan) -> anyhow::Result<()> {
        let text = match self.format {
            ExportFormat::Text => Printable::lines(&plan.text()),
            ExportFormat::Json => Printable::json(&plan.json()),
        };
        if self.destination == STANDARD_OUTPUT {
            write(&text)
        } else {
            write_atomically(
                Path::new(self.destination),
                text.as_str().as_bytes(),
                Readers::All,
                Existing::Replace,
            )
        }
    }
}
