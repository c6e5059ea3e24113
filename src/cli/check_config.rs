//! `check-config`: validates both files and prints the effective configuration (C1).

use super::{Files, files, say, tell};

/// Prints warnings to standard error and the effective configuration to standard output.
pub(super) fn check_config(paths: &Files) -> anyhow::Result<()> {
    let loaded = files::load(paths)?;
    for warning in &loaded.warnings {
        tell(&format!("warning: {warning}\n"));
    }
    say(&loaded.config.effective())
}
