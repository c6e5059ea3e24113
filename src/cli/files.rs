//! Reads both configuration files.

use std::collections::BTreeMap;

use config::{Config, Loaded, Source};

use super::Files;

/// Reads and validates both files with the environment's overrides.
pub(super) fn load(files: &Files) -> anyhow::Result<Loaded> {
    let cloud = config::read(&files.cloud_config)?;
    let controller = match &files.config {
        Some(path) => config::read(path)?,
        None => Source::none("controller.yaml"),
    };
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    Ok(Config::load(cloud, controller, &environment)?)
}
