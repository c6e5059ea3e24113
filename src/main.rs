//! The binary `azure-backend-pool-controller`.

use std::process::ExitCode;

use azure_backend_pool_controller::cli::{Cli, run};
use clap::Parser;

/// Replaces the allocator of musl in the image's binary, because that allocator serializes all threads.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    run(Cli::parse())
}
