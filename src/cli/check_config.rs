//! `check-config`: validates both configuration files and prints the effective configuration (C1). It refuses the same
//! configurations as `run`, but does not contact ARM and does not read the files of the identity.

use std::path::PathBuf;

use clap::Args;
use model::redact::Printable;

use super::{Files, eprint_lines, files, write};
use crate::control_planes;

/// The flags of `check-config`.
#[derive(Args, Debug, Clone)]
pub(super) struct CheckConfigArgs {
    #[command(flatten)]
    files: Files,
    /// The kubeconfig, for `--cloud-config-secret`; by default the files of KUBECONFIG or `~/.kube/config`, else the
    /// Pod's service account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

/// Prints warnings to standard error and the effective configuration to standard output.
pub(super) fn check_config(args: &CheckConfigArgs) -> anyhow::Result<()> {
    let loaded = files::load_with(&args.files, args.kubeconfig.as_ref())?;
    for warning in &loaded.warnings {
        eprint_lines([printable!("warning: {warning}")]);
    }
    for warning in
        control_planes::bootstrap(&loaded.config)?.iter().flat_map(|bootstrap| bootstrap.warnings())
    {
        eprint_lines([printable!("warning: {warning}")]);
    }
    write(&Printable::lines(&loaded.config.effective()))
}
