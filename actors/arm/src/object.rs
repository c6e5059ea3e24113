//! A JSON object whose members stay as they were written: number formats, order and unknown fields.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

/// A JSON object with unparsed members, in their order.
///
/// Of a duplicate key only the last value is kept, as everywhere in JSON.
#[derive(Clone, Default)]
pub(crate) struct Object(Vec<(String, Box<RawValue>)>);

impl Object {
    /// Parses the object in a raw value; `null` is not an object.
    pub(crate) fn within(raw: &RawValue) -> Result<Object, serde_json::Error> {
        serde_json::from_str(raw.get())
    }

    /// Returns the value of a key; a `null` counts as absent.
    pub(crate) fn get(&self, key: &str) -> Option<&RawValue> {
        let (_, value) = self.0.iter().find(|(name, _)| name == key)?;
        (value.get() != "null").then_some(&**value)
    }

    /// Replaces the value of a key in its place, or appends it.
    pub(crate) fn set(&mut self, key: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    /// Returns the object as a raw value.
    pub(crate) fn to_raw(&self) -> Result<Box<RawValue>, serde_json::Error> {
        serde_json::value::to_raw_value(self)
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object, D::Error> {
        deserializer.deserialize_map(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Object;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
        let mut object = Object::default();
        while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
            object.set(&key, value);
        }
        Ok(object)
    }
}
