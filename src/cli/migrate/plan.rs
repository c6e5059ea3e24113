//! `migrate-basic-lb plan`: prints what a migration would change.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use migration::plan::Plan;

use super::journal::{Kind, Store};
use super::output::Output;
use super::{CommonArgs, azure, facts};
use crate::cli::atomic_file::{Existing, Readers, can_write, write_atomically};
use crate::cli::{eprint_lines, print_lines};
use crate::service;

/// Exit code if something blocks the migration.
const BLOCKED: u8 = 3;

/// The flags of `plan`.
#[derive(Args, Debug)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Accepts what the plan says will change: a public address, the name of a scale set whose instances have public
    /// addresses of their own, or `no-outbound`; may be given several times. `migration.accept` of the configuration
    /// counts too.
    #[arg(long, value_name = "NAME")]
    accept: Vec<String>,
    /// Output format of the plan.
    #[arg(long, short = 'o', value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    /// Stores the plan in this file, for `apply`.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replaces an existing file.
    #[arg(long, requires = "out")]
    force: bool,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum OutputFormat {
    Text,
    Json,
}

/// Reads everything and prints the plan.
pub(super) fn plan(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    let config = args.common.load()?;
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    if let Some(file) = &args.out {
        can_write(file, existing)?;
    }
    let plan = service::in_system(async {
        let environment = args.common.open(config).await?;
        let cluster = facts::read(&environment).await?;
        let inventory =
            azure::survey(&environment.arm, environment.clock, cluster, &Output::terminal()).await;
        let plan = Plan::of(&inventory, &environment.accepted(&args.accept));
        let store = Store::of(&environment, Kind::Migration, None);
        anyhow::Ok(match store.read().await {
            Ok(Some(journal)) if !journal.done => plan.blocked_by_unfinished(&journal, &store.head_name()),
            Ok(_) => plan,
            Err(error) => {
                eprint_lines([printable!("warning: it is unknown whether a migration has begun: {error:#}")]);
                plan
            }
        })
    })?;
    let json = serde_json::to_string_pretty(&plan).context("failed to write the plan as JSON")?;
    let text = match args.output {
        OutputFormat::Text => plan.to_string(),
        OutputFormat::Json => json.clone(),
    };
    print_lines(text.lines().map(|line| printable!("{line}")))?;
    if let Some(file) = &args.out {
        write_atomically(file, json.as_bytes(), Readers::Owner, existing)?;
        let file = file.display();
        eprint_lines([match plan.blockers.len() {
            0 => printable!("stored in {file}; apply it with `migrate-basic-lb apply --plan {file}`"),
            _ => printable!("stored in {file}; remove what blocks it, and plan again"),
        }]);
    }
    Ok(if plan.blockers.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(BLOCKED) })
}
