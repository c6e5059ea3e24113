//! `run`: the controller.

use std::process::ExitCode;

use config::LogFormat;

use super::{RunArgs, export, files, migrate};
use crate::service::{self, Options, StorageRollback};
use crate::telemetry::{self, LineFormat};
use crate::wiring::ElectionStart;

/// Runs until SIGTERM or SIGINT, until an export is done, or until the API server's storage was restored to an earlier
/// state.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let loaded = files::load_with(&args.files, args.kubeconfig.as_ref())?;
    let log = &loaded.config.controller.log;
    let log = telemetry::start(log_form(log.format), log.level.as_str());
    for warning in &loaded.warnings {
        tracing::warn!(%warning, "configuration warning");
    }
    let (kubeconfig, dry_run) = (args.kubeconfig.clone(), args.dry_run);
    let migrates = loaded.config.controller.migration.on_startup && !args.export.is_requested();
    let options = Options {
        config: loaded.config,
        kubeconfig,
        dry_run,
        levels: log.levels.clone(),
        restoring: None,
        election: if migrates { ElectionStart::Deferred } else { ElectionStart::Immediate },
    };
    if args.export.is_requested() {
        return export::run(options, &args.export);
    }
    let ended = if migrates {
        migrate::run_after_migration(options)
    } else {
        service::run(options).map(|()| ExitCode::SUCCESS)
    };
    match ended {
        // It is logged already.
        Err(error) if error.is::<StorageRollback>() => Ok(ExitCode::FAILURE),
        ended => ended,
    }
}

/// Returns the log format that the configuration names.
pub(super) fn log_form(format: LogFormat) -> LineFormat {
    match format {
        LogFormat::Json => LineFormat::Json,
        LogFormat::Text => LineFormat::Text,
    }
}
