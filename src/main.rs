//! The binary `azure-backend-pool-controller`.

use std::process::ExitCode;

use azure_backend_pool_controller::cli::{Cli, run};
use clap::Parser;

fn main() -> ExitCode {
    run(Cli::parse())
}
