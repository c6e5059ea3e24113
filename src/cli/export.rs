//! `run --dry-run --export`: what the controller would change, and why, for operators and for pipelines (C4). Made of
//! the published snapshot alone; nothing is written but the file.

mod plan;
mod sources;

use std::convert::Infallible;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use model::machine::Machine as _;
use model::redact::Printable;
use pool_core::comparison::{Comparison, End, In};

use self::plan::Plan;
use super::atomic_file::{Existing, Readers, can_write, write_atomically};
use super::observe;
use super::write;
use crate::service::{self, Ended, Listeners, Options, Sight};

/// How often a file is replaced at most.
const REPLACE_EVERY: Duration = Duration::from_secs(1);
/// The exit code that says that changes are pending.
const PENDING: u8 = 3;
/// The name that means standard output.
const STANDARD_OUTPUT: &str = "-";

/// The flags of `run` that belong to the export.
#[derive(Args, Debug, Clone)]
pub(super) struct ExportArgs {
    /// Writes what a dry run would change, and why, into a file, again whenever that changes; `-`: to standard output,
    /// once at the end.
    #[arg(long, value_name = "FILE|-", requires = "dry_run")]
    export: Option<String>,
    /// The form of the export.
    #[arg(long, value_enum, default_value_t = Form::Json, requires = "export")]
    output: Form,
    /// Ends when everything was compared once, without opening a listener: exit code 0 when nothing is to change, 3 when
    /// something is.
    #[arg(long, requires = "export")]
    until_synced: bool,
    /// How long that may take.
    #[arg(long, value_parser = config::parse_duration, default_value = "5m", requires = "until_synced")]
    within: Duration,
}

/// The form of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Form {
    /// For operators.
    Text,
    /// For programs.
    Json,
}

/// Where an export goes, and how.
struct Export<'a> {
    to: &'a str,
    form: Form,
}

impl ExportArgs {
    /// Whether an export is asked for.
    pub(super) fn is_asked(&self) -> bool {
        self.export.is_some()
    }
}

/// Runs the controller without a write, and exports what it would write.
pub(super) fn run(options: Options, args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let export = Export { to: args.export.as_deref().unwrap_or(STANDARD_OUTPUT), form: args.output };
    if export.to != STANDARD_OUTPUT {
        can_write(Path::new(export.to), Existing::Replaced)?;
    }
    let removal_delay = options.config.controller.members.removal_delay;
    let mut comparison = observe::comparison(&options.config, removal_delay, args.within);
    if !args.until_synced {
        let watcher = async |sight: Sight| export.again_and_again(&sight, &mut comparison).await;
        let Ended { answer, sight } = service::in_system(service::serve(options, Listeners::Open, watcher))?;
        answer.transpose()?;
        look(&sight, &mut comparison);
        export.write(&Plan::of(&comparison, comparison.is_decided(sight.clock.now()), sight.clock))?;
        return Ok(ExitCode::SUCCESS);
    }
    let watcher = async |sight: Sight| observe::until_compared(&sight, &mut comparison).await;
    let Ended { answer, sight } = service::in_system(service::serve(options, Listeners::Absent, watcher))?;
    let missing = observe::told(&comparison.missing());
    let Some(end) = answer else { bail!("interrupted before everything was compared: {missing}") };
    let plan = Plan::of(&comparison, end == End::Complete, sight.clock);
    export.write(&plan)?;
    match end {
        End::Late => {
            bail!("not everything was compared within {:?}: {missing}; the log says more", args.within)
        }
        End::Complete if plan.is_pending() => Ok(ExitCode::from(PENDING)),
        End::Complete => Ok(ExitCode::SUCCESS),
    }
}

/// Shows what is published now.
fn look(sight: &Sight, comparison: &mut Comparison) {
    // Its time has not begun, so it has nothing to say.
    comparison.step(sight.clock.now(), In::Snapshot(sight.published.load_full()), &mut Vec::new());
}

impl Export<'_> {
    /// Replaces the file whenever something has changed; ends only when that fails.
    async fn again_and_again(
        &self,
        sight: &Sight,
        comparison: &mut Comparison,
    ) -> anyhow::Result<Infallible> {
        let mut written = None;
        loop {
            look(sight, comparison);
            let state = (comparison.snapshot().at, comparison.is_decided(sight.clock.now()));
            if self.to != STANDARD_OUTPUT && written != Some(state) {
                self.write(&Plan::of(comparison, state.1, sight.clock))?;
                written = Some(state);
            }
            tokio::time::sleep(REPLACE_EVERY).await;
        }
    }

    fn write(&self, plan: &Plan) -> anyhow::Result<()> {
        let text = match self.form {
            Form::Text => Printable::lines(&plan.text()),
            Form::Json => Printable::json(&plan.json()),
        };
        if self.to == STANDARD_OUTPUT {
            write(&text)
        } else {
            write_atomically(Path::new(self.to), text.as_str().as_bytes(), Readers::All, Existing::Replaced)
        }
    }
}
