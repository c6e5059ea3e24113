//! Label selectors (equality and existence) and field selectors (equality) of lists and watches.

use super::events;
use super::request::Query;
use super::resource::Resource;
use super::status::Failure;
use super::store::Snapshot;

/// Both selectors of one list or watch.
#[derive(Debug, Clone, Default)]
pub(super) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<(Field, bool, String)>,
}

#[derive(Debug, Clone)]
enum Requirement {
    Equal(String, String),
    NotEqual(String, String),
    Exists(String),
    Absent(String),
}

#[derive(Debug, Clone)]
enum Field {
    Name,
    Namespace,
    Other(usize),
}

impl Selector {
    pub fn parse(query: &Query, resource: Resource) -> Result<Selector, Failure> {
        let mut selector = Selector::default();
        for part in parts(query.text("labelSelector")) {
            selector.labels.push(label(part)?);
        }
        for part in parts(query.text("fieldSelector")) {
            selector.fields.push(field(part, resource)?);
        }
        Ok(selector)
    }

    pub fn selects_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn matches(&self, name: &str, namespace: &str, object: &Snapshot) -> bool {
        let labels = object.labels();
        let by_label = self.labels.iter().all(|requirement| match requirement {
            Requirement::Equal(key, value) => labels.get(key) == Some(value),
            Requirement::NotEqual(key, value) => labels.get(key) != Some(value),
            Requirement::Exists(key) => labels.contains_key(key),
            Requirement::Absent(key) => !labels.contains_key(key),
        });
        by_label
            && self.fields.iter().all(|(field, equal, wanted)| {
                let value = match field {
                    Field::Name => name,
                    Field::Namespace => namespace,
                    Field::Other(index) => object.field(*index),
                };
                (value == wanted) == *equal
            })
    }
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

fn split_equality(part: &str) -> Option<(&str, bool, &str)> {
    let (key, equal, value) = if let Some((key, value)) = part.split_once("!=") {
        (key, false, value)
    } else if let Some((key, value)) = part.split_once("==") {
        (key, true, value)
    } else {
        let (key, value) = part.split_once('=')?;
        (key, true, value)
    };
    Some((key.trim(), equal, value.trim()))
}

fn label(part: &str) -> Result<Requirement, Failure> {
    let refused = || {
        Failure::bad_request(format!(
            "unable to parse requirement: \"{part}\" (the model reads equality and existence only)"
        ))
    };
    let usable = |key: &str| !key.is_empty() && !key.contains([' ', '(', ')', '=', '!', '<', '>']);
    let requirement = match split_equality(part) {
        Some((key, true, value)) => Requirement::Equal(key.to_owned(), value.to_owned()),
        Some((key, false, value)) => Requirement::NotEqual(key.to_owned(), value.to_owned()),
        None => match part.strip_prefix('!') {
            Some(key) => Requirement::Absent(key.trim().to_owned()),
            None => Requirement::Exists(part.to_owned()),
        },
    };
    let key = match &requirement {
        Requirement::Equal(key, _)
        | Requirement::NotEqual(key, _)
        | Requirement::Exists(key)
        | Requirement::Absent(key) => key,
    };
    if usable(key) { Ok(requirement) } else { Err(refused()) }
}

fn field(part: &str, resource: Resource) -> Result<(Field, bool, String), Failure> {
    let Some((key, equal, value)) = split_equality(part) else {
        return Err(Failure::bad_request(format!("invalid selector: '{part}'; can't understand '{part}'")));
    };
    let field = match key {
        "metadata.name" => Field::Name,
        "metadata.namespace" => Field::Namespace,
        other if resource.facts().selectable.contains(&other) => {
            let stored = events::stored_field(resource, other);
            let all = resource.stored_as().facts().selectable;
            let at = all.iter().position(|known| *known == stored);
            Field::Other(at.expect("what can be selected by is kept"))
        }
        other => return Err(Failure::bad_request(format!("field label not supported: {other}"))),
    };
    Ok((field, equal, value.to_owned()))
}
