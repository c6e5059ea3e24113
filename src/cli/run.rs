//! `run`: the controller.

use std::process::ExitCode;

use config::LogFormat;

use super::{RunArgs, export, files, migrate};
use crate::service::{self, Options, StorageSetBack};
use crate::telemetry::{self, Form};
use crate::wiring::Election;

/// Runs until SIGTERM or SIGINT, until an export is done, or until the storage of the API server was set back.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let loaded = files::load_with(&args.files, args.kubeconfig.as_ref())?;
    let log = &loaded.config.controller.log;
    let log = telemetry::start(form(log.format), log.level.as_str());
    for warning in &loaded.warnings {
        tracing::warn!(%warning, "configuration");
    }
    let (kubeconfig, dry_run) = (args.kubeconfig.clone(), args.dry_run);
    let migrates = loaded.config.controller.migration.on_startup && !args.export.is_asked();
    let options = Options {
        config: loaded.config,
        kubeconfig,
        dry_run,
        levels: log.levels.clone(),
        restoring: None,
        election: if migrates { Election::WhenTold } else { Election::AtOnce },
    };
    if args.export.is_asked() {
        return export::run(options, &args.export);
    }
    let ended = if migrates {
        migrate::run_after_migration(options)
    } else {
        service::run(options).map(|()| ExitCode::SUCCESS)
    };
    match ended {
        // The log says it.
        Err(error) if error.is::<StorageSetBack>() => Ok(ExitCode::FAILURE),
        ended => ended,
    }
}

pub(super) fn form(format: LogFormat) -> Form {
    match format {
        LogFormat::Json => Form::Json,
        LogFormat::Text => Form::Text,
    }
}
