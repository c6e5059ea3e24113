//! The JSON format of log lines: one flat object with the fields of the event and of its spans, each once. Lists are
//! arrays.

use std::error::Error;
use std::fmt::{self, Debug};

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes an event as one JSON object.
///
/// The keys are `timestamp`, `level` and `target`, then the fields of the event (including `message`), then `span` (the
/// name of the innermost span) and the fields of the spans. If a key occurs twice, its first value is written.
pub(super) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = LineFields::default();
        event.record(&mut fields);
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let target = fields.log_target.take().unwrap_or_else(|| event.metadata().target().to_owned());
        let mut line = LineFields::default();
        line.insert("timestamp", timestamp.into());
        line.insert("level", event.metadata().level().as_str().into());
        line.insert("target", target.into());
        for (key, value) in fields.entries {
            line.insert(&key, value);
        }
        for (depth, span) in context.event_scope().into_iter().flatten().enumerate() {
            if depth == 0 {
                line.insert("span", span.name().into());
            }
            let extensions = span.extensions();
            let of_span = extensions.get::<FormattedFields<N>>().map(|fields| fields.fields.as_str());
            if let Some(Ok(Value::Object(of_span))) = of_span.map(serde_json::from_str) {
                for (key, value) in of_span {
                    line.insert(&key, value);
                }
            }
        }
        line.write(&mut writer)
    }
}

/// The fields of a line in their order, each key once.
#[derive(Default)]
struct LineFields {
    entries: Vec<(String, Value)>,
    /// The target of a record of the crate `log`.
    log_target: Option<String>,
}

impl LineFields {
    fn insert(&mut self, key: &str, value: Value) {
        if self.entries.iter().all(|(known, _)| known != key) {
            self.entries.push((key.to_owned(), value));
        }
    }

    fn write(&self, writer: &mut Writer<'_>) -> fmt::Result {
        for (number, (key, value)) in self.entries.iter().enumerate() {
            let before = if number == 0 { '{' } else { ',' };
            write!(writer, "{before}{}:{value}", Value::from(key.as_str()))?;
        }
        writer.write_str("}\n")
    }

    /// Adds a field. Of the fields that the bridge from the crate `log` adds, only the target is kept.
    fn put_field(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("log.target", Value::String(target)) => self.log_target = Some(target),
            (name, _) if name.starts_with("log.") => {}
            (name, value) => self.insert(name.strip_prefix("r#").unwrap_or(name), value),
        }
    }
}

impl Visit for LineFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put_field(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put_field(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put_field(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put_field(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_field(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.put_field(field, value.to_string().into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        let list = list_of(&text).map(Value::from);
        self.put_field(field, list.unwrap_or_else(|| text.into()));
    }
}

/// Parses the texts of a list that was logged with `?`. Its debug format is that of a JSON array, unless a text has
/// characters that Rust escapes differently. A value that was logged with `%` and looks the same becomes a list too.
fn list_of(text: &str) -> Option<Vec<String>> {
    if text.starts_with('[') { serde_json::from_str(text).ok() } else { None }
}
