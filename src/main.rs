//! The binary `azure-backend-pool-controller`.

use std::process::ExitCode;

use azure_backend_pool_controller::{Cli, run};
use clap::Parser;

/// Replaces the allocator of the platform: musl's serializes all threads, and glibc's is slow in a burst
/// (`benches/intake.sh`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    run(Cli::parse())
}
