//! The API server of the tests, with our ConfigMap.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::arm::Document;
use model::config_map::{ConfigMapAnswer, ConfigMapEdit, ConfigMapFacts, ConfigMapRequest, Text, Value};
use model::machine::{Now, Wall};
use model::object::ResourceVersion;

/// Returns the wall time. The clock starts at noon.
pub(super) fn wall(now: Now) -> Wall {
    Wall::from_micros(1_700_000_000_000_000 + i64::try_from(now.as_micros()).expect("a short test"))
}

/// The ConfigMap.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    pub(super) data: Option<BTreeMap<Arc<str>, Text>>,
    pub(super) binary: BTreeSet<Arc<str>>,
    version: u64,
    /// True if the server drops writes silently.
    pub(super) drops: bool,
}

impl Server {
    pub(super) fn keys(&self) -> Vec<&str> {
        self.data.iter().flatten().map(|(key, _)| &**key).collect()
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.data.as_ref()?.get(key).map(|text| &*text.text)
    }

    /// Writes a key as another client.
    pub(super) fn put(&mut self, key: &str, text: &str) {
        self.version += 1;
        let text = Text { text: text.into(), time: None };
        self.data.get_or_insert_default().insert(key.into(), text);
    }

    /// Removes a key as another client.
    pub(super) fn remove(&mut self, key: &str) {
        self.version += 1;
        self.data.as_mut().expect("it exists").remove(key).expect("the key is there");
    }

    pub(super) fn carry_out(&mut self, now: Now, request: &ConfigMapRequest) -> ConfigMapAnswer {
        match request {
            ConfigMapRequest::Get | ConfigMapRequest::Watch(..) => {}
            ConfigMapRequest::Create(_) if self.data.is_some() => return ConfigMapAnswer::Conflict,
            ConfigMapRequest::Replace(..) if self.data.is_none() => return ConfigMapAnswer::Absent,
            ConfigMapRequest::Replace(base, _) if *base.version.0 != *self.version.to_string() => {
                return ConfigMapAnswer::Conflict;
            }
            ConfigMapRequest::Create(edit) | ConfigMapRequest::Replace(_, edit) => self.store(edit),
        }
        let Some(data) = &self.data else { return ConfigMapAnswer::Absent };
        ConfigMapAnswer::Seen(Arc::new(ConfigMapFacts {
            binary: self.binary.clone(),
            data: data.clone(),
            read: wall(now),
            version: ResourceVersion(Arc::from(self.version.to_string())),
            document: Document::new(()),
        }))
    }

    fn store(&mut self, edit: &ConfigMapEdit) {
        assert!(!edit.is_empty(), "a write changes something");
        self.version += 1;
        let data = self.data.get_or_insert_default();
        if self.drops {
            return;
        }
        data.retain(|key, _| !edit.remove.contains(key));
        for (key, value) in &edit.set {
            let Value::Since { head, at, tail } = value else { panic!("a record has a time: {value:?}") };
            let text = format!("{head}\nsince: 2023-11-14T22:13:20.000000Z\n{tail}").into();
            data.insert(Arc::clone(key), Text { text, time: Some(wall(*at)) });
        }
    }
}
