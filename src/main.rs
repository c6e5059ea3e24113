//! The binary `azure-backend-pool-controller`.

use std::process::ExitCode;

use azure_backend_pool_controller::cli::{Cli, run};
use clap::Parser;

/// The image's binary stands on musl, whose own allocator lets one thread in at a time.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    run(Cli::parse())
}
