//! Makes foreign text about failures safe to show: one line, of limited length, without secrets (C1). Every text from
//! the API server, or from a proxy in front of it, passes through here before it reaches a log line, a machine, the
//! operator or an event.

use std::error::Error;
use std::sync::Arc;

use http::StatusCode;
use model::redact;
use serde_json::Value;

/// Maximum length of a text, in bytes.
const MAX_LENGTH: usize = 600;

/// Returns foreign text without known secrets.
pub(super) fn safe_text(text: &str) -> Arc<str> {
    safe_text_without(text, &[])
}

/// Returns foreign text without these secrets either: an answer may repeat the request.
pub(super) fn safe_text_without(text: &str, secrets: &[&str]) -> Arc<str> {
    Arc::from(redact::safe_line(text, secrets, MAX_LENGTH))
}

/// Returns an error answer as text: its status, and the message of its Status object or the start of its body.
pub(super) fn status_text(status: StatusCode, body: &[u8]) -> String {
    status_text_without(status, body, &[])
}

/// Returns an error answer as text, without these secrets either.
pub(super) fn status_text_without(status: StatusCode, body: &[u8], secrets: &[&str]) -> String {
    let object = serde_json::from_slice::<Value>(body).ok();
    let message = object.as_ref().and_then(|object| object["message"].as_str());
    let text = match message {
        Some(message) => redact::safe_line(message, secrets, MAX_LENGTH),
        // An answer that is not from an API server is rarely useful.
        None => redact::safe_line(&String::from_utf8_lossy(body), secrets, MAX_LENGTH / 3),
    };
    format!("HTTP {}: {text}", status.as_u16())
}

/// Returns an error with all its sources, outermost first, without repetitions.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    redact::safe_line(&redact::chain(error), &[], MAX_LENGTH)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn an_error_has_its_status_message_or_the_start_of_its_body() {
        let status = StatusCode::FORBIDDEN;
        assert_eq!(status_text(status, br#"{"kind":"Status","message":"no"}"#), "HTTP 403: no");
        assert_eq!(status_text(status, b"too many\n"), "HTTP 403: too many");
        assert!(status_text(status, &[b'x'; 9_000]).len() < 300);
    }

    #[test]
    fn an_api_server_message_is_one_printable_line() {
        let hostile = "a\u{1b}[2J\u{7}\u{202e}\nb";
        let body = serde_json::json!({ "message": hostile }).to_string();
        let escaped = "a\\u{1b}[2J\\u{7}\\u{202e} b";
        assert_eq!(status_text(StatusCode::FORBIDDEN, body.as_bytes()), format!("HTTP 403: {escaped}"));
        assert_eq!(status_text(StatusCode::FORBIDDEN, hostile.as_bytes()), format!("HTTP 403: {escaped}"));
        assert_eq!(*safe_text(hostile), *escaped);
        assert_eq!(chain(&io::Error::other(hostile)), escaped);
    }

    #[test]
    fn c1_answers_errors_and_their_sources_are_redacted() {
        let echo = "refused: Authorization: Bearer planted-token\r\nAccept: */*";
        let bodies = [
            echo.to_owned(),
            serde_json::json!({ "message": echo }).to_string(),
            "\"Bearer planted-token\"".to_owned(),
        ];
        for body in bodies {
            let text = status_text(StatusCode::FORBIDDEN, body.as_bytes());
            assert!(!text.contains("planted") && text.contains(redact::REDACTED), "{text}");
        }
        let body = b"{\"message\": \"no planted-token here\"}";
        let text = status_text_without(StatusCode::FORBIDDEN, body, &["planted-token"]);
        assert_eq!(text, "HTTP 403: no <redacted> here");
        let error = kube::Error::Service(Box::new(io::Error::other(echo)));
        assert!(!chain(&error).contains("planted"), "{}", chain(&error));
    }
}
