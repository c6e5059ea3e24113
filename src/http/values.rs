//! Value types of the admin API: durations, times, addresses and counts.

use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;

use serde::{Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

use super::enums::ValueSet;

/// A duration in seconds.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Serialize, ToSchema)]
#[schema(minimum = 0)]
pub(super) struct Seconds(pub(super) f64);

/// The age of the snapshot of this answer in seconds; null before the first.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, ToSchema)]
#[schema(minimum = 0)]
pub(super) struct SnapshotAge(pub(super) Option<f64>);

/// A moment, as RFC 3339 writes it.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub(super) struct Time(pub(super) String);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialSchema for Time {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new().schema_type(Type::String);
        let text = text.format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)));
        text.description(Some("A moment, as RFC 3339 writes it.")).into()
    }
}

impl ToSchema for Time {}

/// An IP address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(super) struct Address(pub(super) IpAddr);

impl PartialSchema for Address {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::String).description(Some("An IP address.")).into()
    }
}

impl ToSchema for Address {}

/// Converts addresses, in the same order.
pub(super) fn addresses<'a>(all: impl IntoIterator<Item = &'a IpAddr>) -> Vec<Address> {
    all.into_iter().copied().map(Address).collect()
}

/// The number of occurrences of each word of a set, as an object with a field for each word. Fields use an alias of
/// this type, because utoipa splits generic types.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Counts<W>(Vec<(&'static str, usize)>, PhantomData<W>);

impl<W: ValueSet> Counts<W> {
    /// Counts these words, and ignores words outside the set.
    pub(super) fn of(found: impl Iterator<Item = &'static str>) -> Counts<W> {
        let mut counts: Vec<(&'static str, usize)> = W::all().into_iter().map(|word| (word, 0)).collect();
        for word in found {
            if let Some((_, count)) = counts.iter_mut().find(|(known, _)| *known == word) {
                *count += 1;
            }
        }
        Counts(counts, PhantomData)
    }
}

impl<W> Serialize for Counts<W> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

impl<W: ValueSet> PartialSchema for Counts<W> {
    fn schema() -> RefOr<Schema> {
        let count = |object: ObjectBuilder, word: &str| object.property(word, usize::schema());
        W::all().into_iter().fold(ObjectBuilder::new(), count).into()
    }
}

impl<W: ValueSet> ToSchema for Counts<W> {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::http::enums;

    #[test]
    fn h3_only_words_of_the_set_are_counted() {
        let counts = Counts::<enums::GateClass>::of(["writes", "polls", "writes"].into_iter());
        assert_eq!(serde_json::to_value(counts).expect("JSON"), json!({ "reads": 0, "writes": 2 }));
    }
}
