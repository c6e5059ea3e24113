//! Recently sent tokens are found in every text and encoding.

use super::*;
use crate::redact::{REDACTED, chain, redacted, safe_line};

const OPAQUE: &str = "opaque+planted/credit==";
const SIGNATURE: &str = "c2lnbmF0dXJlLXNpZ25hdHVyZQ";

#[test]
fn c1_a_sent_token_is_removed_in_any_encoding() {
    record_sent_token(&Recipient::Azure, OPAQUE);
    for written in [
        OPAQUE.to_owned(),
        format!("the word is <{OPAQUE}>, refused"),
        "opaque%2Bplanted%2Fcredit%3D%3D".to_owned(),
        "opaque%2bplanted%2fcredit==".to_owned(),
        r"opaque\u002Bplanted\/credit\u003d\u003D".to_owned(),
        r"opaque\\u002Bplanted\\\/credit==".to_owned(),
        "opaque&#43;planted&#x2F;credit==".to_owned(),
        r"\u006fpaque+planted/credit==".to_owned(),
        // Base64 of the token, of `a:` and the token, and of `ab:` and the token.
        "b3BhcXVlK3BsYW50ZWQvY3JlZGl0PT0=".to_owned(),
        "YTpvcGFxdWUrcGxhbnRlZC9jcmVkaXQ9PQ==".to_owned(),
        "YWI6b3BhcXVlK3BsYW50ZWQvY3JlZGl0PT0".to_owned(),
        // Cut by the peer.
        format!("it is {}...", &OPAQUE[..17]),
    ] {
        let text = format!("a {written} b");
        let shown = redacted(&text);
        assert!(shown.contains(REDACTED), "{written}: {shown}");
        for part in ["opaque", "planted", "paque", "credit", "b3BhcXVl", "cGFxdWU", "GFxdWUr", "BhcXVlK3"] {
            assert!(!shown.contains(part), "{written}: {shown}");
        }
        assert!(shown.starts_with("a ") && shown.ends_with(" b"), "{written}: {shown}");
    }
}

#[test]
fn c1_the_signature_of_a_sent_token_is_removed() {
    record_sent_token(&Recipient::ApiServer, &format!("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxIn0.{SIGNATURE}"));
    assert_eq!(safe_line(&format!("no key for {SIGNATURE}, sorry"), &[], 90), "no key for <redacted>, sorry");
    let error = std::io::Error::other(format!("signature={SIGNATURE}"));
    assert!(!safe_line(&chain(&error), &[], 90).contains(SIGNATURE));
}

#[test]
fn c1_texts_too_short_for_a_token_are_kept() {
    let plane = Recipient::ControlPlane(Arc::from("plane"));
    record_sent_token(&plane, "backend");
    record_sent_token(&plane, "");
    assert_eq!(redacted("the backend pool"), "the backend pool");
}

#[test]
fn c1_only_the_last_tokens_of_each_recipient_are_kept() {
    let all: Vec<String> = (0..100).map(|number| format!("planted-{number:03}")).collect();
    let mut recent = RecentTokens::with(None, &Recipient::Authority, "planted-assertion");
    for token in &all {
        recent = RecentTokens::with(Some(&recent), &Recipient::Azure, token);
        recent = RecentTokens::with(Some(&recent), &Recipient::Azure, &all[0]);
    }
    let kept: Vec<&str> = recent.tokens.iter().map(|(_, token)| &**token).collect();
    let expected = [
        "planted-assertion",
        "planted-093",
        "planted-094",
        "planted-095",
        "planted-096",
        "planted-097",
        "planted-098",
        "planted-099",
        "planted-000",
    ];
    assert_eq!(kept, expected);
    assert!(recent.is_newest(&Recipient::Azure, &all[0]) && !recent.is_newest(&Recipient::Azure, &all[99]));
}

#[test]
fn c1_tokens_of_many_control_planes_are_removed() {
    let planes = 3 * TOKENS_PER_RECIPIENT;
    for plane in 0..planes {
        let to = Recipient::ControlPlane(Arc::from(format!("plane-{plane}:443")));
        record_sent_token(&to, &format!("planted-for-plane-{plane:03}"));
    }
    for plane in 0..planes {
        let text = format!("it was planted-for-plane-{plane:03}");
        assert_eq!(redacted(&text), "it was <redacted>", "of {planes}");
    }
}
