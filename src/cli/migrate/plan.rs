//! `migrate-basic-lb plan`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use migration::plan::Plan;

use super::output::Output;
use super::{Common, azure, facts};
use crate::cli::atomic_file::{Existing, Readers, atomic_file, can_write};
use crate::cli::say;
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
        anyhow::Ok(Plan::of(&inventory, &outside.accepted(&args.accept)))
    })?;
    let json = serde_json::to_string_pretty(&plan).context("failed to write the plan as JSON")?;
    let text = match args.output {
        Form::Text => plan.to_string(),
        Form::Json => json.clone(),
    };
    say(text.lines().map(|line| printable!("{line}")))?;
    if let Some(file) = &args.out {
        atomic_file(file, json.as_bytes(), Readers::Owner, existing)?;
    }
    Ok(if plan.blockers.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(BLOCKED) })
}
