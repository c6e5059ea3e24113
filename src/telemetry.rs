//! Logs: `tracing` events as JSON or text on standard error (design.md 12).

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Crates that tell what we tell already, in their own way: an unreachable API server as an error of each connection,
/// listeners and their threads, a failed request to ARM before it is decided what follows from it.
const QUIET: &str = "kube_client=off,actix_server=warn,typespec_client_core=warn";

/// The form of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// One JSON object a line.
    Json,
    /// Text for people.
    Text,
}

/// Starts logging to standard error. `level` is one of `error`, `warn`, `info`, `debug`, `trace`; the environment
/// variable `RUST_LOG` refines it by target.
///
/// A second call changes nothing.
pub fn start(form: Form, level: &str) {
    let refined = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    // The builder's default directive would count only where there is no other, and so never.
    let filter = EnvFilter::builder().parse_lossy(format!("{level},{QUIET},{refined}"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match form {
        Form::Json => builder.json().flatten_event(true).try_init(),
        Form::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    if started.is_err() {
        tracing::debug!("logging was started before");
    }
}
