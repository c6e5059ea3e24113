//! Parses the body of an error in every known shape: ARM's envelope, bare, in PascalCase, quoted once more,
//! truncated, XML, HTML, or empty.

use serde_json::{Map, Value};

/// Examined length of a body, in bytes.
const LOOKED_AT: usize = 64 << 10;

/// Maximum number of codes that are kept.
const MAX_CODES: usize = 16;

/// Contents of an error's body.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ErrorBody {
    /// The codes, outermost first.
    pub(super) codes: Vec<String>,
    /// The messages, outermost first, each inner one after its code.
    pub(super) message: String,
}

impl ErrorBody {
    /// Parses a body of any shape.
    pub(super) fn parse(bytes: &[u8]) -> ErrorBody {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LOOKED_AT)]);
        let text = text.trim_start_matches('\u{feff}').trim();
        let mut read = match serde_json::from_str::<Value>(text) {
            Ok(Value::String(inner)) => match serde_json::from_str::<Value>(&inner) {
                Ok(value) => of_value(&value),
                Err(_) => ErrorBody { codes: Vec::new(), message: inner },
            },
            Ok(value) => of_value(&value),
            Err(_) if text.starts_with('<') => of_markup(text),
            Err(_) => of_fragment(text),
        };
        if read.codes.is_empty() && read.message.is_empty() {
            text.clone_into(&mut read.message);
        }
        read
    }

    /// Parses the body of a poll: the error in it, without the status beside the error.
    pub(super) fn of_operation(body: &Value) -> ErrorBody {
        of_value(body)
    }
}

fn of_value(value: &Value) -> ErrorBody {
    let mut read = ErrorBody::default();
    let Value::Object(whole) = value else { return read };
    match member(whole, "error").or_else(|| member(whole, "odata.error")) {
        Some(Value::Object(error)) => collect(error, &mut read),
        Some(Value::String(code)) => {
            read.codes.push(code.clone());
            let text = member(whole, "error_description").or_else(|| member(whole, "message"));
            read.message = text.map(text_value).unwrap_or_default();
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) | None => {
            collect(whole, &mut read);
        }
    }
    read
}

/// Collects the codes and messages of an error and its inner errors. The parser bounds the depth.
fn collect(error: &Map<String, Value>, read: &mut ErrorBody) {
    let code = member(error, "code").or_else(|| member(error, "internalErrorCode")).map(text_value);
    let code = code.filter(|code| !code.is_empty());
    let message = member(error, "message").map(text_value).unwrap_or_default();
    if !message.is_empty() {
        if !read.message.is_empty() {
            read.message.push(' ');
            if let Some(code) = &code {
                read.message.push_str(code);
                read.message.push_str(": ");
            }
        }
        read.message.push_str(&message);
    }
    if let Some(code) = code
        && read.codes.len() < MAX_CODES
    {
        read.codes.push(code);
    }
    if let Some(Value::Array(details)) = member(error, "details") {
        for detail in details {
            if let Value::Object(detail) = detail {
                collect(detail, read);
            }
        }
    }
    if let Some(Value::Object(inner)) = member(error, "innerError") {
        collect(inner, read);
    }
}

/// Returns the member of this name in any spelling.
fn member<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object
        .get(name)
        .or_else(|| object.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value))
}

/// Returns a text, a number, or OData's `{"value": text}`.
fn text_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Object(object) => {
            member(object, "value").and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        Value::Null | Value::Bool(_) | Value::Array(_) => String::new(),
    }
}

/// Parses XML with elements `Code` and `Message`, HTML with a title, or the text between the tags.
fn of_markup(text: &str) -> ErrorBody {
    let codes = element(text, "code").into_iter().collect();
    let message = element(text, "message").or_else(|| element(text, "title")).unwrap_or_else(|| {
        let mut plain = String::new();
        for part in text.split('<') {
            plain.push_str(part.split_once('>').map_or("", |(_, after)| after));
            plain.push(' ');
        }
        plain.trim().to_owned()
    });
    ErrorBody { codes, message }
}

/// Returns the text of the first element of this name.
fn element(text: &str, name: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let start = lower.find(&format!("<{name}>"))? + name.len() + 2;
    let length = lower.get(start..)?.find(&format!("</{name}>"))?;
    let inner = text.get(start..start + length)?.trim();
    (!inner.is_empty()).then(|| inner.to_owned())
}

/// Parses JSON that is truncated or part of something: the strings after `"code":` and `"message":`.
fn of_fragment(text: &str) -> ErrorBody {
    let mut read = ErrorBody::default();
    let mut rest = text;
    let mut key: Option<String> = None;
    while let Some(at) = rest.find('"') {
        let is_value = key.is_some() && rest[..at].trim() == ":";
        let (string, after) = string(&rest[at + 1..]);
        rest = after;
        match key.take() {
            Some(key) if is_value && key.eq_ignore_ascii_case("code") => {
                if read.codes.len() < MAX_CODES {
                    read.codes.push(string);
                }
            }
            Some(key) if is_value && key.eq_ignore_ascii_case("message") => {
                if !read.message.is_empty() {
                    read.message.push(' ');
                }
                read.message.push_str(&string);
            }
            Some(_) | None => key = Some(string),
        }
    }
    read
}

/// Splits off the string that begins here, up to its closing quote or the end.
fn string(text: &str) -> (String, &str) {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !escaped => return (unescaped(&text[..at]), &text[at + 1..]),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    (unescaped(text), "")
}

fn unescaped(raw: &str) -> String {
    serde_json::from_str(&format!("\"{raw}\"")).unwrap_or_else(|_| raw.replace('\\', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expect(body: &str, codes: &[&str], message: &str) {
        let read = ErrorBody::parse(body.as_bytes());
        assert_eq!(read.codes, codes, "{body}");
        assert_eq!(read.message, message, "{body}");
    }

    #[test]
    fn w5_codes_and_messages_are_read_outermost_first() {
        let body = r#"{"error":{"code":"RetryableError","message":"A \"retryable\" error.","details":[
            {"code":"RetryableErrorDueToAnotherOperation","message":"It can be retried in 14 seconds."}]}}"#;
        let codes = ["RetryableError", "RetryableErrorDueToAnotherOperation"];
        let text =
            "A \"retryable\" error. RetryableErrorDueToAnotherOperation: It can be retried in 14 seconds.";
        expect(body, &codes, text);
        expect(&body.replace('\n', "\r\n"), &codes, text);
        expect(&format!("\u{feff}{body}"), &codes, text);
        expect(&Value::String(body.to_owned()).to_string(), &codes, text);
    }

    #[test]
    fn w5_codes_and_messages_are_read_from_other_json() {
        expect(r#"{"code":"Bare","message":"m"}"#, &["Bare"], "m");
        expect(
            r#"{"Error":{"Code":"A","Message":"m","Details":[{"Code":"B","Target":null}]}}"#,
            &["A", "B"],
            "m",
        );
        expect(
            r#"{"error":{"code":"A","innererror":{"code":"B","innererror":{"code":"C"}}}}"#,
            &["A", "B", "C"],
            "",
        );
        expect(r#"{"error":{"code":"A","InnerError":{"internalErrorCode":"B"}}}"#, &["A", "B"], "");
        expect(r#"{"error":"invalid_client","error_description":"no"}"#, &["invalid_client"], "no");
        expect(r#"{"odata.error":{"code":"A","message":{"lang":"en","value":"m"}}}"#, &["A"], "m");
        expect(r#"{"error":{"code":409,"message":null}}"#, &["409"], "");
        expect(r#"{"status":"Failed"}"#, &[], r#"{"status":"Failed"}"#);
        expect(r#"[1,2]"#, &[], "[1,2]");
    }

    #[test]
    fn w5_a_code_or_text_is_read_from_other_formats() {
        expect("", &[], "");
        expect("upstream connect error", &[], "upstream connect error");
        expect("<Error><Code>ServerBusy</Code><Message>wait</Message></Error>", &["ServerBusy"], "wait");
        expect("<html><head><title>502 Bad Gateway</title></head></html>", &[], "502 Bad Gateway");
        expect("<p>no <b>way</b></p>", &[], "no  way");
        let broken = r#"{"error":{"code":"PreconditionFailed","message":"Precondition \"failed\".","details":[{"code":"PreconditionFailedEtagMismatch","mess"#;
        expect(broken, &["PreconditionFailed", "PreconditionFailedEtagMismatch"], "Precondition \"failed\".");
        expect("\"code\": \"A\",\n\"message\": \"m", &["A"], "m");
    }
}
