//! Kubernetes label selectors in their text form: `app=web,tier!=cache,zone in (a,b),!internal`. Parses and renders
//! them; the caller matches labels.

use std::fmt;

/// A label selector; the empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

/// One requirement on one label; all of a selector's must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// `key`
    Exists(String),
    /// `!key`
    Absent(String),
    /// `key=value`, `key in (a,b)`
    In(String, Vec<String>),
    /// `key!=value`, `key notin (a,b)`; also matches objects without the label.
    NotIn(String, Vec<String>),
}

impl LabelSelector {
    /// Returns the requirements in the order of the text.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Parses the text form.
    ///
    /// # Errors
    /// Describes the invalid part.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let requirements = parts(text)?.into_iter().map(requirement).collect::<Result<_, _>>()?;
        Ok(Self { requirements })
    }
}

/// The text form, as kubectl and the API server read it.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match requirement {
                Requirement::Exists(key) => write!(f, "{key}")?,
                Requirement::Absent(key) => write!(f, "!{key}")?,
                Requirement::In(key, values) => match values.as_slice() {
                    [value] => write!(f, "{key}={value}")?,
                    values => write!(f, "{key} in ({})", values.join(","))?,
                },
                Requirement::NotIn(key, values) => match values.as_slice() {
                    [value] => write!(f, "{key}!={value}")?,
                    values => write!(f, "{key} notin ({})", values.join(","))?,
                },
            }
        }
        Ok(())
    }
}

/// Splits at the commas that are not inside parentheses.
fn parts(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut in_parentheses) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' if in_parentheses => return Err("a second `(`".to_owned()),
            '(' => in_parentheses = true,
            ')' if !in_parentheses => return Err("a `)` without `(`".to_owned()),
            ')' => in_parentheses = false,
            ',' if !in_parentheses => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if in_parentheses {
        return Err("a `(` without `)`".to_owned());
    }
    parts.push(text[start..].trim());
    Ok(parts)
}

fn requirement(part: &str) -> Result<Requirement, String> {
    if let Some(key) = part.strip_prefix('!') {
        return Ok(Requirement::Absent(key_of(key)?));
    }
    if let Some((head, list)) = part.split_once('(') {
        let list = list.strip_suffix(')').ok_or_else(|| "text after `)`".to_owned())?;
        let values = list.split(',').map(|value| value_of(value.trim())).collect::<Result<Vec<_>, _>>()?;
        let mut words = head.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => Ok(Requirement::In(key_of(key)?, values)),
            (Some(key), Some("notin"), None) => Ok(Requirement::NotIn(key_of(key)?, values)),
            _ => Err("a list without `key in` or `key notin` before it".to_owned()),
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        return Ok(Requirement::NotIn(key_of(key)?, vec![value_of(value.trim())?]));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok(Requirement::In(key_of(key)?, vec![value_of(value.trim())?]));
    }
    Ok(Requirement::Exists(key_of(part)?))
}

fn key_of(text: &str) -> Result<String, String> {
    let text = text.trim();
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let is_prefix_valid = prefix.is_none_or(|prefix| {
        prefix.len() <= 253
            && prefix.split('.').all(|label| {
                is_label_text(label, 63, |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            })
    });
    if is_prefix_valid && is_label_value(name) {
        Ok(text.to_owned())
    } else {
        Err(format!("the label key {text:?}"))
    }
}

fn value_of(text: &str) -> Result<String, String> {
    if text.is_empty() || is_label_value(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("the label value {text:?}"))
    }
}

fn is_label_value(text: &str) -> bool {
    is_label_text(text, 63, |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// Returns whether the text is 1 to `longest` allowed characters that begin and end with a letter or digit.
fn is_label_text(text: &str, longest: usize, allowed: impl Fn(char) -> bool) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= longest
        && edge(text.chars().next())
        && edge(text.chars().next_back())
        && text.chars().all(allowed)
}

/// Returns whether the text is a Kubernetes namespace name.
pub(crate) fn is_namespace(text: &str) -> bool {
    is_label_text(text, 63, |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d1_selectors_read_as_kubernetes_reads_them_and_write_back() {
        let rows = [
            ("", ""),
            ("app=web", "app=web"),
            ("app == web , tier!=cache", "app=web,tier!=cache"),
            ("zone in (a, b),!internal,example.com/x", "zone in (a,b),!internal,example.com/x"),
            ("zone notin (a)", "zone!=a"),
            ("empty=", "empty="),
        ];
        for (text, written) in rows {
            let selector = LabelSelector::parse(text).expect("valid");
            assert_eq!(selector.to_string(), written, "{text}");
            assert_eq!(LabelSelector::parse(written), Ok(selector), "{text}");
        }
    }

    #[test]
    fn d1_selectors_that_kubernetes_refuses_are_refused() {
        let rows = [
            ",",
            "a=b,",
            "a=b c",
            "=b",
            "a in b",
            "a in (b",
            "a in (b))",
            "a in ((b)",
            "(b)",
            "a in (b) c",
            "-a",
            "a/b/c",
            "UPPER.example/x",
            "a>1",
            "é",
        ];
        for text in rows {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
    }
}
