//! Logs: `tracing` events as JSON or text on standard error (design.md 12).
//!
//! A thread of its own writes them, so that nobody waits for whoever reads them: beyond 128,000 lines that wait, further
//! ones are left out. A line that cannot be written, because the disk is full or nobody reads any more, is lost, and
//! nothing else is.

use std::io::IsTerminal;
use std::sync::Arc;

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

/// Crates that tell what we tell already, in their own way: an unreachable API server as an error of each connection,
/// listeners and their threads, a failed request to ARM before it is decided what follows from it; and what anybody can
/// make come about who reaches a listener: a client that does not speak HTTP, as an error.
const QUIET: &str = "kube_client=off,actix_http=off,actix_server=warn,typespec_client_core=warn";

/// The form of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// One JSON object a line.
    Json,
    /// Text for people.
    Text,
}

/// Changes which lines are written, while the process runs.
#[derive(Clone)]
pub struct Levels(Arc<dyn Fn(EnvFilter) -> bool + Send + Sync>);

impl Levels {
    /// The words for levels, from the most important lines to all.
    pub const WORDS: [&'static str; 5] = ["error", "warn", "info", "debug", "trace"];

    /// Those of a process that does not log.
    #[must_use]
    pub fn none() -> Levels {
        Levels(Arc::new(|_| false))
    }

    /// Writes lines of this level and more important ones from now on; `RUST_LOG` goes on refining it. Says whether
    /// that could be done.
    #[must_use]
    pub fn set(&self, level: &str) -> bool {
        (self.0)(filter(level))
    }
}

impl std::fmt::Debug for Levels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Levels")
    }
}

fn filter(level: &str) -> EnvFilter {
    let refined = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    // The builder's default directive would count only where there is no other, and so never.
    EnvFilter::builder().parse_lossy(format!("{level},{QUIET},{refined}"))
}

/// The running log.
pub struct Log {
    /// Which lines are written.
    pub levels: Levels,
    /// Lines that wait when it goes are written before.
    _writer: WorkerGuard,
}

/// Starts logging to standard error. `level` is one of `error`, `warn`, `info`, `debug`, `trace`; the environment
/// variable `RUST_LOG` refines it by target.
///
/// A second call changes nothing.
#[must_use = "lines that wait when it is dropped are written, and none after that"]
pub fn start(form: Form, level: &str) -> Log {
    let (writer, guard) =
        NonBlockingBuilder::default().lossy(true).thread_name("log").finish(std::io::stderr());
    // A line about a line that could not be written would be written to the same place, and panic there.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(level))
        .log_internal_errors(false)
        .with_writer(writer);
    let (levels, started) = match form {
        Form::Json => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let handle = builder.reload_handle();
            (Levels(Arc::new(move |filter| handle.reload(filter).is_ok())), builder.try_init())
        }
        Form::Text => {
            let builder = builder.with_ansi(std::io::stderr().is_terminal()).with_filter_reloading();
            let handle = builder.reload_handle();
            (Levels(Arc::new(move |filter| handle.reload(filter).is_ok())), builder.try_init())
        }
    };
    if started.is_err() {
        tracing::debug!("logging was started before");
    }
    Log { levels, _writer: guard }
}
