//! The signals of a scenario that make a node drain: taints, and eviction notices of its virtual machine.

use std::time::Duration;

use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use simulator::models::kube::{build, rfc3339};
use simulator::{Clock, duration};

/// The taints of draining nodes, by their short names in scenarios.
const SHORT: [(&str, &str); 3] = [
    ("out-of-service", "node.kubernetes.io/out-of-service:NoExecute"),
    ("shutdown", "node.cloudprovider.kubernetes.io/shutdown:NoSchedule"),
    ("spot-eviction", "cloudprovider.azure.microsoft.com/draining=spot-eviction:NoSchedule"),
];
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Time from a notice to the eviction.
const NOTICE: SignedDuration = SignedDuration::from_secs(30);

/// A taint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    pub key: String,
    value: String,
    effect: String,
}

impl Taint {
    /// Parses `KEY[=VALUE][:EFFECT]`, or a short name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let whole = SHORT.iter().find(|(short, _)| *short == text).map_or(text, |(_, whole)| *whole);
        let (taint, effect) = whole.split_once(':').unwrap_or((whole, EFFECTS[0]));
        let (key, value) = taint.split_once('=').unwrap_or((taint, ""));
        if key.is_empty() || !EFFECTS.contains(&effect) {
            let (effects, short) = (EFFECTS.join("|"), SHORT.map(|(short, _)| short).join(", "));
            return Err(format!("{text:?} is no taint: write KEY[=VALUE][:{effects}], or one of {short}"));
        }
        Ok(Self { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() })
    }

    /// Returns the taint of an entry in a node's object.
    pub fn of(object: &Value) -> Self {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        Self { key: text("key"), value: text("value"), effect: text("effect") }
    }

    /// Returns the entry for a node's object.
    pub fn object(&self) -> Value {
        let Self { key, value, effect } = self;
        if value.is_empty() {
            json!({ "key": key, "effect": effect })
        } else {
            json!({ "key": key, "value": value, "effect": effect })
        }
    }
}

/// A notice, or something similar that is no notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    form: NoticeForm,
    /// Reason of an event, or type of a condition.
    reason: Option<String>,
    /// Age of the notice.
    age: Duration,
    text: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoticeForm {
    Event,
    EventV1,
    Condition,
}

impl Notice {
    /// Parses `event|event-v1|condition [reason R] [age TIME] [text WORDS]`.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let known = "a notice is event|event-v1|condition [reason REASON] [age TIME] [text WORDS]";
        let (form, mut rest) = match words {
            ["event", rest @ ..] => (NoticeForm::Event, rest),
            ["event-v1", rest @ ..] => (NoticeForm::EventV1, rest),
            ["condition", rest @ ..] => (NoticeForm::Condition, rest),
            other => return Err(format!("{other:?} is no notice: {known}")),
        };
        let mut notice = Self { form, reason: None, age: Duration::ZERO, text: None };
        loop {
            rest = match rest {
                [] => return Ok(notice),
                ["reason", reason, more @ ..] => {
                    notice.reason = Some((*reason).to_owned());
                    more
                }
                ["age", time, more @ ..] => {
                    notice.age = duration(time)?;
                    more
                }
                ["text", text @ ..] if !text.is_empty() => {
                    notice.text = Some(text.join(" "));
                    &[]
                }
                other => return Err(format!("unknown word of a notice {other:?}: {known}")),
            };
        }
    }

    /// Returns whether it is a condition of the node, and no event.
    pub fn is_condition(&self) -> bool {
        self.form == NoticeForm::Condition
    }

    /// Returns the event about a node, or the condition of it.
    pub fn object(&self, node: &str, clock: &Clock) -> Value {
        let at_s = (clock.epoch_s() + clock.now_us() / 1_000_000).saturating_sub(self.age.as_secs());
        let at = rfc3339(at_s);
        let text = self.text.clone().unwrap_or_else(|| scheduled(&at));
        let reason = |usual: &str| self.reason.clone().unwrap_or_else(|| usual.to_owned());
        // A repeated notice is the same object.
        let name = format!("{node}.{}", reason("PreemptScheduled").to_lowercase());
        match self.form {
            NoticeForm::Event => build::node_event(&name, node, &reason("PreemptScheduled"), &text, &at),
            NoticeForm::EventV1 => {
                let at = format!("{}.000000Z", at.trim_end_matches('Z'));
                build::node_event_v1(&name, node, &reason("PreemptScheduled"), &text, &at)
            }
            NoticeForm::Condition => {
                build::condition(&reason("PreemptionScheduled"), "SpotEvictionIncoming", &text, &at)
            }
        }
    }
}

/// Returns the text of node monitors about an eviction that was announced at this time.
fn scheduled(at: &str) -> String {
    let announced: Timestamp = at.parse().expect("the API server's time");
    let due = announced.checked_add(NOTICE).expect("this century");
    let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&due).expect("a year of four digits");
    format!(
        "Preempt Scheduled: {date}. DurationInSeconds: -1.  For more information, see \
         https://aka.ms/aks/scheduledevents."
    )
}

#[test]
fn a_taint_is_written_in_full_or_by_its_short_name() {
    let taint = |text: &str| Taint::parse(text).map(|taint| taint.object());
    assert_eq!(taint("a/b"), Ok(json!({ "key": "a/b", "effect": "NoSchedule" })));
    assert_eq!(taint("a/b=c:NoExecute"), Ok(json!({ "key": "a/b", "value": "c", "effect": "NoExecute" })));
    let known = json!({
        "key": "cloudprovider.azure.microsoft.com/draining", "value": "spot-eviction", "effect": "NoSchedule",
    });
    assert_eq!(taint("spot-eviction"), Ok(known.clone()));
    assert_eq!(Taint::of(&known), Taint::parse("spot-eviction").expect("a taint"));
    for wrong in ["", "=b", "a:Sometimes"] {
        let error = Taint::parse(wrong).expect_err(wrong);
        assert!(error.contains("KEY[=VALUE][:NoSchedule|PreferNoSchedule|NoExecute]"), "{error}");
    }
}

#[test]
fn a_notice_has_a_form_and_optional_parts() {
    let plain = Notice { form: NoticeForm::Event, reason: None, age: Duration::ZERO, text: None };
    assert_eq!(Notice::parse(&["event"]), Ok(plain.clone()));
    let words = ["condition", "reason", "VMEventScheduled", "age", "90s", "text", "Freeze", "Scheduled:"];
    let whole = Notice {
        form: NoticeForm::Condition,
        reason: Some("VMEventScheduled".to_owned()),
        age: Duration::from_secs(90),
        text: Some("Freeze Scheduled:".to_owned()),
    };
    assert_eq!(Notice::parse(&words), Ok(whole));
    for wrong in [&["letter"][..], &["event", "text"], &["event", "age"], &["event", "soon"], &[]] {
        let error = Notice::parse(wrong).expect_err("no notice");
        assert!(error.contains("event|event-v1|condition [reason REASON]"), "{error}");
    }
    assert!(Notice::parse(&["event", "age", "old"]).is_err());
}

#[test]
fn the_text_of_a_notice_has_the_eviction_time() {
    let message = scheduled("2026-11-22T23:59:45Z");
    assert!(message.starts_with("Preempt Scheduled: Mon, 23 Nov 2026 00:00:15 GMT. "), "{message}");
}
