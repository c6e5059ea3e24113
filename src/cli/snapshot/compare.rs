//! Texts about the changes of pools since a snapshot.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::format::{Balancer, Filter};

const ADDRESSES: &str = "loadBalancerBackendAddresses";

/// Returns the differences of a load balancer since the snapshot; `now` is `None` if it no longer exists.
pub(super) fn differences(then: &Balancer, now: Option<&Balancer>, filter: &Filter) -> Vec<String> {
    let Some(now) = now else { return vec![format!("{} is gone", then.name)] };
    let documents = |lb: &Balancer| -> BTreeMap<String, (String, Value)> {
        let read = |text: &str| serde_json::from_str(text).unwrap_or_default();
        let pools = lb.pools.iter().filter(|pool| filter.includes_pool(&pool.name));
        pools.map(|pool| (pool.name.to_lowercase(), (pool.name.clone(), read(pool.document.get())))).collect()
    };
    let (before, after) = (documents(then), documents(now));
    let mut differences = Vec::new();
    for (key, (name, before)) in &before {
        let name = format!("{}/{name}", then.name);
        match after.get(key) {
            None => differences.push(format!("{name} is gone")),
            Some((_, after)) => differences
                .extend(pool_differences(before, after).into_iter().map(|it| format!("{name}: {it}"))),
        }
    }
    let new = after.iter().filter(|(key, _)| !before.contains_key(*key));
    differences.extend(new.map(|(_, (name, _))| format!("{}/{name} is new", then.name)));
    differences
}

/// Returns the differences of a pool.
fn pool_differences(before: &Value, after: &Value) -> Vec<String> {
    let (old, new) = (members(before), members(after));
    let removed =
        old.keys().filter(|member| !new.contains_key(*member)).map(|it| format!("{it} was removed"));
    let mut differences: Vec<String> = removed.collect();
    differences
        .extend(new.keys().filter(|member| !old.contains_key(*member)).map(|it| format!("{it} was added")));
    differences.extend(besides_members(before, after));
    differences
}

/// Returns whether both have the same members, whatever their fields.
pub(in crate::cli) fn same_members(before: &Value, after: &Value) -> bool {
    members(before).keys().eq(members(after).keys())
}

/// Returns the differences in the fields of remaining members and of the pool itself.
pub(in crate::cli) fn besides_members(before: &Value, after: &Value) -> Vec<String> {
    let (old, new) = (members(before), members(after));
    let mut differences = Vec::new();
    for (member, was) in &old {
        let Some(is) = new.get(member) else { continue };
        if is.state != was.state {
            differences.push(format!("{member}: adminState was {} and is {}", was.state, is.state));
        }
        differences.extend(
            differing_keys(&was.other_fields, &is.other_fields)
                .map(|key| format!("{member}: {key} is different")),
        );
    }
    differences.extend(
        differing_keys(&other_fields(before), &other_fields(after)).map(|key| format!("{key} is different")),
    );
    differences
}

/// Returns the keys whose values differ.
fn differing_keys<'a>(
    old: &'a BTreeMap<String, Value>,
    new: &'a BTreeMap<String, Value>,
) -> impl Iterator<Item = &'a String> {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    keys.into_iter().filter(|key| old.get(*key) != new.get(*key))
}

/// A member of a pool.
struct Member {
    state: String,
    /// Its other fields.
    other_fields: BTreeMap<String, Value>,
}

/// Returns the members by address and name, or by name alone if they are network interfaces.
fn members(pool: &Value) -> BTreeMap<String, Member> {
    let entries = pool["properties"][ADDRESSES].as_array().into_iter().flatten();
    let member = |entry: &Value| {
        let (name, properties) = (entry["name"].as_str().unwrap_or_default(), &entry["properties"]);
        let state = properties["adminState"].as_str().unwrap_or("None").to_owned();
        let member = Member { state, other_fields: comparable_fields(entry, &["ipAddress", "adminState"]) };
        match properties["ipAddress"].as_str() {
            Some(ip) => (format!("{ip} ({name})"), member),
            None => (name.to_owned(), member),
        }
    };
    entries.map(member).collect()
}

/// Returns the fields of a pool without its members.
fn other_fields(pool: &Value) -> BTreeMap<String, Value> {
    comparable_fields(pool, &[ADDRESSES])
}

/// Returns the fields of a resource and of its properties. Omits the fields in `without`, those that identify the
/// resource, and those that change with every write of its load balancer.
fn comparable_fields(resource: &Value, without: &[&str]) -> BTreeMap<String, Value> {
    let own = resource.as_object().into_iter().flatten();
    let own = own.filter(|(key, _)| !["id", "name", "type", "properties"].contains(&key.as_str()));
    let properties = resource["properties"].as_object().into_iter().flatten();
    let all = own.chain(properties.filter(|(key, _)| !without.contains(&key.as_str())));
    let comparable_fields = all.filter(|(key, _)| *key != "etag" && *key != "provisioningState");
    comparable_fields.map(|(key, value)| (key.clone(), without_etags(value))).collect()
}

fn without_etags(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let remaining = map.iter().filter(|(key, _)| *key != "etag" && *key != "provisioningState");
            Value::Object(remaining.map(|(key, value)| (key.clone(), without_etags(value))).collect())
        }
        Value::Array(items) => items.iter().map(without_etags).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balancer(pools: &str) -> Balancer {
        let text = format!(r#"{{"id":"/lb","properties":{{"backendAddressPools":[{pools}]}}}}"#);
        Balancer::read("lb", &text, String::new(), &Filter::default()).expect("a load balancer")
    }

    fn changes(before: &str, after: &str) -> Vec<String> {
        differences(&balancer(before), Some(&balancer(after)), &Filter::default())
    }

    fn pool(name: &str, entries: &str, more: &str) -> String {
        format!(r#"{{"name":"{name}","etag":"x","properties":{{"{ADDRESSES}":[{entries}]{more}}}}}"#)
    }

    #[test]
    fn all_differences_are_reported_except_those_of_etags() {
        let one = r#"{"name":"n1","properties":{"ipAddress":"10.0.0.1","provisioningState":"Updating"}}"#;
        let down = r#"{"name":"n1","properties":{"ipAddress":"10.0.0.1","adminState":"Down"}}"#;
        let two = r#"{"name":"n2","properties":{"ipAddress":"10.0.0.2"}}"#;
        let nic = r#"{"name":"guid","properties":{"networkInterfaceIPConfiguration":{"id":"/nic"}}}"#;
        let same = r#","provisioningState":"Succeeded""#;
        assert_eq!(changes(&pool("p", one, ""), &pool("P", one, same)), Vec::<String>::new());
        assert_eq!(
            changes(&pool("p", one, ""), &pool("p", two, "")),
            ["lb/p: 10.0.0.1 (n1) was removed", "lb/p: 10.0.0.2 (n2) was added"]
        );
        assert_eq!(
            changes(&pool("p", one, ""), &pool("p", down, "")),
            ["lb/p: 10.0.0.1 (n1): adminState was None and is Down"]
        );
        assert_eq!(changes(&pool("p", nic, ""), &pool("p", "", "")), ["lb/p: guid was removed"]);
        assert_eq!(
            changes(&pool("p", "", ""), &pool("p", "", r#","syncMode":"Manual""#)),
            ["lb/p: syncMode is different"]
        );
        assert_eq!(changes(&pool("p", "", ""), &pool("q", "", "")), ["lb/p is gone", "lb/q is new"]);
        let moved = r#"{"name":"n1","properties":{"ipAddress":"10.0.0.1","adminState":"Up","virtualNetwork":{"id":"/v"}}}"#;
        assert_eq!(
            changes(&pool("p", one, ""), &pool("p", moved, "")),
            [
                "lb/p: 10.0.0.1 (n1): adminState was None and is Up",
                "lb/p: 10.0.0.1 (n1): virtualNetwork is different"
            ]
        );
        let (here, there) = (r#"{"name":"p","zones":["1"]}"#, r#"{"name":"p","zones":["2"],"id":"/p"}"#);
        assert_eq!(changes(here, there), ["lb/p: zones is different"]);
        assert_eq!(differences(&balancer(""), None, &Filter::default()), ["lb is gone"]);
    }
}
