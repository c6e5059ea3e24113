//! Logs: `tracing` events as JSON or text on standard error (docs/design/surface.md, commands).
//!
//! A separate thread writes them, so that a slow reader delays nothing. When 16,000 lines wait, further lines are
//! dropped. If a line cannot be written, because the disk is full or the pipe is closed, it is lost, without any other
//! effect.
//!
//! Each event becomes one line of printable text without recently sent tokens, whatever its fields contain: the writer
//! escapes and redacts each line. Therefore text lines have no colours.

mod json_lines;

use std::io;
use std::sync::Arc;

use model::redact::Printable;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use self::json_lines::JsonLines;

/// Filters for crates whose log lines repeat ours: an error per connection while the API server is unreachable,
/// listener threads, and failed ARM requests that are not classified yet. Also for lines that any client can trigger,
/// for example by not speaking HTTP.
const TARGET_FILTERS: &str = "kube_client=off,actix_http=off,actix_server=warn,typespec_client_core=warn";

/// The number of lines that may wait for the writer. The queue takes its memory at the start.
const WAITING_LINES: usize = 16_000;

/// Format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineFormat {
    /// One JSON object a line.
    Json,
    /// Text for operators.
    Text,
}

/// Changes the log level of the running process.
#[derive(Clone)]
pub struct Levels(Arc<dyn Fn(EnvFilter) -> bool + Send + Sync>);

impl Levels {
    /// Names of the levels, from the most severe to the most verbose.
    pub const NAMES: [&'static str; 5] = ["error", "warn", "info", "debug", "trace"];

    /// Returns a handle without effect, for a process that does not log.
    #[must_use]
    pub fn none() -> Levels {
        Levels(Arc::new(|_| false))
    }

    /// Sets the minimum level; `RUST_LOG` still overrides it for single targets. Returns whether it was set.
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
    let directives = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    // The builder's default directive applies only without other directives, so it would never apply.
    EnvFilter::builder().parse_lossy(format!("{level},{TARGET_FILTERS},{directives}"))
}

/// Escapes and redacts each line before it is written.
#[derive(Clone)]
struct LineWriter<M> {
    inner: M,
    format: LineFormat,
}

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for LineWriter<M> {
    type Writer = LineWriter<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        LineWriter { inner: self.inner.make_writer(), format: self.format }
    }
}

impl<W: io::Write> io::Write for LineWriter<W> {
    /// Writes one whole line: the subscriber writes each event with one call.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let line = match self.format {
            LineFormat::Json => Printable::json(line),
            LineFormat::Text => Printable::line(line),
        };
        self.inner.write_all(format!("{line}\n").as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The running log.
pub struct Log {
    /// Handle that changes the level.
    pub levels: Levels,
    /// Flushes waiting lines when dropped.
    _writer: WorkerGuard,
}

/// Starts logging to standard error. `level` is one of `error`, `warn`, `info`, `debug`, `trace`; the environment
/// variable `RUST_LOG` refines it by target.
///
/// A second call changes nothing.
#[must_use = "dropping it flushes waiting lines and stops logging"]
pub fn start(format: LineFormat, level: &str) -> Log {
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(WAITING_LINES)
        .thread_name("log")
        .finish(std::io::stderr());
    // An internal error about a failed write would go to the same stream, and panic there.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(level))
        .log_internal_errors(false)
        .with_writer(LineWriter { inner: writer, format });
    let (levels, started) = match format {
        LineFormat::Json => {
            let builder = builder.json().event_format(JsonLines).with_filter_reloading();
            let handle = builder.reload_handle();
            (Levels(Arc::new(move |filter| handle.reload(filter).is_ok())), builder.try_init())
        }
        LineFormat::Text => {
            let builder = builder.with_ansi(false).with_filter_reloading();
            let handle = builder.reload_handle();
            (Levels(Arc::new(move |filter| handle.reload(filter).is_ok())), builder.try_init())
        }
    };
    if started.is_err() {
        tracing::debug!("logging is already started");
    }
    Log { levels, _writer: guard }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Returns a line as the writer writes it.
    fn written(format: LineFormat, line: &str) -> String {
        let mut bytes = Vec::new();
        LineWriter { inner: &mut bytes, format }.write_all(line.as_bytes()).expect("a vector takes all");
        String::from_utf8(bytes).expect("it is text")
    }

    #[test]
    fn any_text_line_is_one_printable_line() {
        let line = written(LineFormat::Text, "WARN failed name=a\u{1b}[2J\u{7}\u{202e}\nERROR forged\n");
        assert_eq!(line, "WARN failed name=a\\u{1b}[2J\\u{7}\\u{202e}\\u{a}ERROR forged\n");
    }

    #[test]
    fn a_json_line_is_printable_and_equivalent() {
        let line = written(LineFormat::Json, "{\"name\":\"a\u{202e}\u{9b}\"}\n");
        assert_eq!(line, "{\"name\":\"a\\u202e\\u009b\"}\n");
    }

    #[test]
    fn c1_no_line_has_a_sent_token() {
        model::redact::record_sent_token(&model::redact::Recipient::ApiServer, "planted-for-the-log");
        let line = written(LineFormat::Text, "WARN failed name=planted-for-the-log\n");
        assert_eq!(line, "WARN failed name=<redacted>\n");
    }
}
