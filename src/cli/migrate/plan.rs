//! `migrate-basic-lb plan`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use migration::plan::Plan;

use super::journal::{Kind, Store};
use super::output::Output;
use super::{Common, azure, facts};
use crate::cli::atomic_file::{Existing, Readers, can_write, write_atomically};
use crate::cli::{say, tell};
use crate::service;

/// The exit code that says that something blocks the migration.
const BLOCKED: u8 = 3;

/// The flags of `plan`.
#[derive(Args, Debug)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    common: Common,
    /// Accepts what the plan says will change: a public address, the name of a scale set whose instances have public
    /// addresses of their own, or `no-outbound`; may be given several times. `migration.accept` of the configuration counts
    /// too.
    #[arg(long, value_name = "NAME")]
    accept: Vec<String>,
    /// Prints the plan in this form.
    #[arg(long, short = 'o', value_enum, default_value_t = Form::Text)]
    output: Form,
    /// Stores the plan in this file, for `apply`.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replaces a file that exists.
    #[arg(long, requires = "out")]
    force: bool,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Text,
    Json,
}

/// Reads everything and prints the plan.
pub(super) fn plan(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    let config = args.common.load()?;
    let existing = if args.force { Existing::Replaced } else { Existing::Kept };
    if let Some(file) = &args.out {
        can_write(file, existing)?;
    }
    let plan = service::in_system(async {
        let outside = args.common.open(config).await?;
        let cluster = facts::read(&outside).await?;
        let inventory = azure::survey(&outside.arm, outside.clock, cluster, &Output::terminal()).await;
        let plan = Plan::of(&inventory, &outside.accepted(&args.accept));
        let store = Store::of(&outside, Kind::Migration, None);
        anyhow::Ok(match store.read().await {
            Ok(Some(journal)) if !journal.done => plan.after(&journal, &store.place()),
            Ok(_) => plan,
            Err(why) => {
                tell([printable!("warning: whether a migration has begun is not known: {why:#}")]);
                plan
            }
        })
    })?;
    let json = serde_json::to_string_pretty(&plan).context("failed to write the plan as JSON")?;
    let text = match args.output {
        Form::Text => plan.to_string(),
        Form::Json => json.clone(),
    };
    say(text.lines().map(|line| printable!("{line}")))?;
    if let Some(file) = &args.out {
        write_atomically(file, json.as_bytes(), Readers::Owner, existing)?;
        let file = file.display();
        tell([match plan.blockers.len() {
            0 => printable!("stored in {file}; carry it out with `migrate-basic-lb apply --plan {file}`"),
            _ => printable!("stored in {file}; remove what blocks it, and plan again"),
        }]);
    }
    Ok(if plan.blockers.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(BLOCKED) })
}
