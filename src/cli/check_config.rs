//! `check-config`: validates both files and prints the effective configuration (C1). What `run` would refuse, it
//! refuses.

use actors::clock::Clock;

use super::{Files, files, say, tell};
use crate::wiring::params;

/// Prints warnings to standard error and the effective configuration to standard output.
pub(super) fn check_config(paths: &Files) -> anyhow::Result<()> {
    let loaded = files::load(paths)?;
    for warning in &loaded.warnings {
        tell(&format!("warning: {warning}\n"));
    }
    params::arm(&loaded.config, Clock::start())?;
    say(&loaded.config.effective())
}
