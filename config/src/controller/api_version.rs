//! The version of Azure's network API. Older clouds do not support all versions.

use serde_json::{Value as Schema, json};

use super::setting::{AnyValue, Setting};
use crate::document::Node;
use crate::problem::Mismatch;
use crate::value::Value;

/// The oldest version that is known to have admin states of pool members.
const OLDEST: &str = "2021-08-01";

/// The pattern of a version.
const PATTERN: &str = "^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])(-preview)?$";

/// A version of the network API: a date, optionally with `-preview`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiVersion(String);

impl ApiVersion {
    /// Returns the version as in a URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for ApiVersion {
    type Rule = AnyValue;
    type Refusal = Mismatch;

    fn read(node: &Node, rule: &Self::Rule) -> Result<Self, Mismatch> {
        let text = node.text().unwrap_or_default();
        let date = text.strip_suffix("-preview").unwrap_or(text);
        if !is_date(date) {
            return Err(Mismatch::new(
                Self::expected(rule),
                "write it like 2024-05-01 or 2024-05-01-preview",
            ));
        }
        if date < OLDEST {
            let remedy =
                "write a later version; members of backend pools have no admin state in earlier ones";
            return Err(Mismatch::new(Self::expected(rule), remedy));
        }
        Ok(Self(text.to_owned()))
    }

    fn expected(_rule: &Self::Rule) -> String {
        format!("a version of Azure's network API, {OLDEST} or later")
    }

    fn schema(_rule: &Self::Rule) -> Schema {
        json!({ "type": "string", "pattern": PATTERN })
    }

    fn to_value(&self) -> Value {
        Value::Text(self.0.clone())
    }
}

/// Returns whether the text is a day of this century, `YYYY-MM-DD`.
fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts.as_slice() else { return false };
    let number = |text: &str, digits: usize| {
        let has_digits = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        has_digits.then(|| text.parse::<u32>().ok()).flatten()
    };
    number(year, 4).is_some_and(|year| (2000..2100).contains(&year))
        && number(month, 2).is_some_and(|month| (1..=12).contains(&month))
        && number(day, 2).is_some_and(|day| (1..=31).contains(&day))
}
