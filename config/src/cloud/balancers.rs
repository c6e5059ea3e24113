//! `multipleStandardLoadBalancerConfigurations`: reads the entries and checks them as the cloud-controller-manager
//! does. The selectors for placement are not stored, because only the cloud-controller-manager uses them.

use std::collections::BTreeSet;

use super::fields::Fields;
use crate::document::{Content, Node};
use crate::problem::{Location, Mismatch, Problem};

/// The key.
pub(crate) const KEY: &str = "multipleStandardLoadBalancerConfigurations";

/// The keys of an entry.
pub(super) const KEYS: [&str; 6] = [
    "name",
    "primaryVMSet",
    "allowServicePlacement",
    "serviceLabelSelector",
    "serviceNamespaceSelector",
    "nodeSelector",
];

/// One load balancer of a multi-SLB cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalancerConfiguration {
    /// The public load balancer's name as written; `<name>-internal` is its internal one.
    pub name: String,
    /// The VM set whose nodes belong to it.
    pub primary_vm_set: String,
    /// Whether new Services may be placed on it; true when absent.
    pub allow_service_placement: Option<bool>,
}

/// Reads the list; wrong entries become problems.
pub(crate) fn read(file: &str, items: &[Node], problems: &mut Vec<Problem>) -> Vec<BalancerConfiguration> {
    let mut configurations = Vec::new();
    let mut names = BTreeSet::new();
    let mut vm_sets = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let Content::Map(entries) = &item.content else {
            problems.push(Problem {
                location: Location::Line(file.to_owned(), item.line),
                field: format!("{KEY}[{index}]"),
                found: item.describe(),
                expected: "a map with at least name and primaryVMSet".to_owned(),
                remedy: "write `name: …` and `primaryVMSet: …`".to_owned(),
            });
            continue;
        };
        let mut fields = Fields::new(file, format!("{KEY}[{index}]."), entries, problems);
        let name = super::reader::resource_name(&mut fields, "name");
        let vm_set = fields.text("primaryVMSet");
        let allow_service_placement = fields.boolean("allowServicePlacement");
        for selector in ["serviceLabelSelector", "serviceNamespaceSelector", "nodeSelector"] {
            // Read for its shape only: the array form that some documents show does not load upstream either.
            fields.map(selector);
        }
        let name = distinct(&mut fields, "name", name, &mut names);
        let vm_set = distinct(&mut fields, "primaryVMSet", vm_set, &mut vm_sets);
        if let (Some(name), Some(primary_vm_set)) = (name, vm_set) {
            configurations.push(BalancerConfiguration { name, primary_vm_set, allow_service_placement });
        }
    }
    configurations
}

/// Requires a value that no earlier entry has; case does not count.
fn distinct(
    fields: &mut Fields<'_>,
    key: &str,
    value: Option<String>,
    earlier: &mut BTreeSet<String>,
) -> Option<String> {
    match value {
        Some(value) if earlier.insert(value.to_ascii_lowercase()) => Some(value),
        Some(_) => {
            fields.refuse(key, Mismatch::new("a value that no other entry has", "give each entry its own"));
            None
        }
        None if !fields.is_refused(key) => {
            fields.refuse(key, Mismatch::new("a value", "add it; every entry needs one"));
            None
        }
        None => None,
    }
}
