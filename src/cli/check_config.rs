//! `check-config`: validates both files and prints the effective configuration (C1). What `run` would refuse of it, it
//! refuses; it opens neither ARM nor the identity's files.

use std::path::PathBuf;

use clap::Args;
use model::redact::Printable;

use super::{Files, files, tell, write};
use crate::control_planes;

/// The flags of `check-config`.
#[derive(Args, Debug, Clone)]
pub(super) struct CheckConfigArgs {
    #[command(flatten)]
    files: Files,
    /// The kubeconfig, for `--cloud-config-secret`; without it the files of KUBECONFIG or `~/.kube/config`, else the pod's
    /// service account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

/// Prints warnings to standard error and the effective configuration to standard output.
pub(super) fn check_config(args: &CheckConfigArgs) -> anyhow::Result<()> {
    let loaded = files::load_with(&args.files, args.kubeconfig.as_ref())?;
    for warning in &loaded.warnings {
        tell([printable!("warning: {warning}")]);
    }
    for warning in
        control_planes::bootstrap(&loaded.config)?.iter().flat_map(|bootstrap| bootstrap.warnings())
    {
        tell([printable!("warning: {warning}")]);
    }
    write(&Printable::lines(&loaded.config.effective()))
}
