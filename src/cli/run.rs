//! `run`: the controller.

use config::LogFormat;

use super::{RunArgs, files};
use crate::service::{self, Options};
use crate::telemetry::{self, Form};

/// Runs until SIGTERM or SIGINT.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let loaded = files::load(&args.files)?;
    let log = &loaded.config.controller.log;
    telemetry::start(form(log.format), log.level.as_str());
    for warning in &loaded.warnings {
        tracing::warn!(%warning, "configuration");
    }
    let options =
        Options { config: loaded.config, kubeconfig: args.kubeconfig.clone(), dry_run: args.dry_run };
    service::run(options)
}

fn form(format: LogFormat) -> Form {
    match format {
        LogFormat::Json => Form::Json,
        LogFormat::Text => Form::Text,
    }
}
