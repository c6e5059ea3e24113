//! The command `e2e`: see docs/development/e2e-tests.md.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use e2e::Options;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let (text, code) = match e2e::run(&Options::parse(), &std::env::vars().collect()).await {
        Ok(result) => (result.text, if result.failed { 1 } else { 0 }),
        Err(error) => (format!("e2e: {error:#}\n"), 2),
    };
    // This failure cannot be reported.
    drop(std::io::stdout().write_all(text.as_bytes()));
    ExitCode::from(code)
}
