//! Collects the schemas to which the paths of the document refer.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema as _, ToSchema};

use super::super::page::Listing;
use super::super::values::SnapshotAge;

/// The schemas of answers, by their names.
#[derive(Default)]
pub(super) struct Schemas(BTreeMap<String, RefOr<Schema>>);

impl Schemas {
    /// Adds the schema of a type with all types that it contains, and returns the reference to it.
    pub(super) fn of<T: ToSchema>(&mut self) -> Ref {
        let mut parts = Vec::new();
        T::schemas(&mut parts);
        self.0.extend(parts);
        self.0.insert(T::name().into_owned(), T::schema());
        Ref::from_schema_name(T::name())
    }

    /// Adds the schema of pages with entries of this type, under this name, and returns the reference to it.
    pub(super) fn listing<T: ToSchema>(&mut self, name: &str) -> Ref {
        self.of::<T>();
        self.of::<SnapshotAge>();
        self.0.insert(name.to_owned(), Listing::<T>::schema());
        Ref::from_schema_name(name)
    }

    /// Returns all schemas, completed, together with those of request bodies.
    pub(super) fn finished(self, asked: impl IntoIterator<Item = (&'static str, RefOr<Schema>)>) -> Value {
        let json = |schema: RefOr<Schema>| serde_json::to_value(schema).expect("a schema is JSON");
        let answers = self.0.into_iter().map(|(name, schema)| {
            let mut schema = json(schema);
            complete(&mut schema);
            (name, schema)
        });
        let asked = asked.into_iter().map(|(name, schema)| (name.to_owned(), json(schema)));
        Value::Object(answers.chain(asked).collect())
    }
}

/// Completes the schema of an answer. An answer always has all fields of its type, null or not, and no others. But
/// utoipa treats an `Option` as a field that may be absent, and permits further fields. Flattened structs are merged
/// into the object, because only an object that lists all of its fields can exclude others.
fn complete(schema: &mut Value) {
    let Value::Object(schema) = schema else { return };
    for key in ["allOf", "anyOf", "oneOf"] {
        schema.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().for_each(complete);
    }
    for key in ["items", "additionalProperties"] {
        schema.get_mut(key).into_iter().for_each(complete);
    }
    if let Some(Value::Array(parts)) = schema.remove("allOf") {
        merge(schema, parts);
    }
    if let Some(Value::Object(fields)) = schema.get_mut("properties") {
        fields.values_mut().for_each(complete);
        let names: Vec<Value> = fields.keys().cloned().map(Value::String).collect();
        schema.insert("required".to_owned(), names.into());
        schema.insert("additionalProperties".to_owned(), false.into());
    }
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = description.replace('\n', " ");
    }
}

/// Merges parts into one object. The parts are flattened structs and the object's own fields, or an inlined struct and
/// the description of its field.
fn merge(whole: &mut Map<String, Value>, parts: Vec<Value>) {
    let mut fields = Map::new();
    for mut part in parts {
        assert!(part.get("$ref").is_none(), "a flattened field is not inlined: {part}");
        match part.get_mut("properties").map(Value::take) {
            Some(Value::Object(more)) => fields.extend(more),
            Some(_) | None => {
                whole.extend(part.get_mut("description").map(|text| ("description".to_owned(), text.take())))
            }
        }
    }
    whole.insert("type".to_owned(), "object".into());
    whole.insert("properties".to_owned(), Value::Object(fields));
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde_json::json;

    use super::*;

    /// A part.
    #[derive(Serialize, ToSchema)]
    struct Part {
        /// A text
        /// of two lines.
        text: Option<String>,
    }

    #[derive(Serialize, ToSchema)]
    struct FullSchema {
        #[serde(flatten)]
        #[schema(inline)]
        part: Part,
        parts: Vec<Part>,
        /// How many.
        #[schema(inline)]
        counts: Counts,
    }

    type Counts = crate::http::values::Counts<crate::http::enums::GateClass>;

    #[test]
    fn h3_answers_have_every_field_and_no_other() {
        let mut schemas = Schemas::default();
        assert_eq!(schemas.of::<FullSchema>().ref_location, "#/components/schemas/FullSchema");
        let text = json!({ "type": ["string", "null"], "description": "A text of two lines." });
        let count = json!({ "type": "integer", "minimum": 0 });
        let expected = json!({
            "Part": {
                "type": "object",
                "description": "A part.",
                "required": ["text"],
                "properties": { "text": text },
                "additionalProperties": false,
            },
            "FullSchema": {
                "type": "object",
                "required": ["text", "parts", "counts"],
                "properties": {
                    "text": text,
                    "parts": { "type": "array", "items": { "$ref": "#/components/schemas/Part" } },
                    "counts": {
                        "type": "object",
                        "description": "How many.",
                        "required": ["reads", "writes"],
                        "properties": { "reads": count, "writes": count },
                        "additionalProperties": false,
                    },
                },
                "additionalProperties": false,
            },
        });
        assert_eq!(schemas.finished([]), expected);
    }
}
