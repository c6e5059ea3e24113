//! What has changed in pools since a snapshot, in words.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::format::{Balancer, Filter};

const ADDRESSES: &str = "loadBalancerBackendAddresses";

/// What is different now in a load balancer of a snapshot; `now` is `None` when it is gone.
pub(super) fn differences(then: &Balancer, now: Option<&Balancer>, filter: &Filter) -> Vec<String> {
    let Some(now) = now else { return vec![format!("{} is gone", then.name)] };
    let documents = |lb: &Balancer| -> BTreeMap<String, (String, Value)> {
        let read = |text: &str| serde_json::from_str(text).unwrap_or_default();
        let pools = lb.pools.iter().filter(|pool| filter.wants_pool(&pool.name));
        pools.map(|pool| (pool.name.to_lowercase(), (pool.name.clone(), read(pool.document.get())))).collect()
    };
    let (before, after) = (documents(then), documents(now));
    let mut told = Vec::new();
    for (key, (name, before)) in &before {
        let name = format!("{}/{name}", then.name);
        match after.get(key) {
            None => told.push(format!("{name} is gone")),
            Some((_, after)) => {
                told.extend(of_pool(before, after).into_iter().map(|it| format!("{name}: {it}")))
            }
        }
    }
    let new = after.iter().filter(|(key, _)| !before.contains_key(*key));
    told.extend(new.map(|(_, (name, _))| format!("{}/{name} is new", then.name)));
    told
}

/// What is different in one pool.
fn of_pool(before: &Value, after: &Value) -> Vec<String> {
    let (old, new) = (members(before), members(after));
    let gone = old.keys().filter(|member| !new.contains_key(*member)).map(|it| format!("{it} has gone"));
    let mut told: Vec<String> = gone.collect();
    told.extend(new.keys().filter(|member| !old.contains_key(*member)).map(|it| format!("{it} has come")));
    told.extend(besides_members(before, after));
    told
}

/// Whether a pool has the same members, whatever their fields are.
pub(in crate::cli) fn same_members(before: &Value, after: &Value) -> bool {
    members(before).keys().eq(members(after).keys())
}

/// What is different in a pool besides which members it has: fields of those that it has still, and its own.
pub(in crate::cli) fn besides_members(before: &Value, after: &Value) -> Vec<String> {
    let (old, new) = (members(before), members(after));
    let mut told = Vec::new();
    for (member, was) in &old {
        let Some(is) = new.get(member) else { continue };
        if is.state != was.state {
            told.push(format!("{member}: adminState was {} and is {}", was.state, is.state));
        }
        told.extend(others(&was.rest, &is.rest).map(|key| format!("{member}: {key} is different")));
    }
    told.extend(others(&rest(before), &rest(after)).map(|key| format!("{key} is different")));
    told
}

/// The keys whose values differ.
fn others<'a>(
    old: &'a BTreeMap<String, Value>,
    new: &'a BTreeMap<String, Value>,
) -> impl Iterator<Item = &'a String> {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    keys.into_iter().filter(|key| old.get(*key) != new.get(*key))
}

/// An entry of a pool.
struct Member {
    state: String,
    /// Its other fields.
    rest: BTreeMap<String, Value>,
}

/// The members: by address, or by name where a network interface stands instead.
fn members(pool: &Value) -> BTreeMap<String, Member> {
    let entries = pool["properties"][ADDRESSES].as_array().into_iter().flatten();
    let member = |entry: &Value| {
        let (name, properties) = (entry["name"].as_str().unwrap_or_default(), &entry["properties"]);
        let state = properties["adminState"].as_str().unwrap_or("None").to_owned();
        let member = Member { state, rest: lasting(entry, &["ipAddress", "adminState"]) };
        match properties["ipAddress"].as_str() {
            Some(ip) => (format!("{ip} ({name})"), member),
            None => (name.to_owned(), member),
        }
    };
    entries.map(member).collect()
}

/// The fields of a pool that are not its members.
fn rest(pool: &Value) -> BTreeMap<String, Value> {
    lasting(pool, &[ADDRESSES])
}

/// The fields of a resource and of its properties, without these, without what says which resource it is, and without
/// what changes by itself with every write of its load balancer.
fn lasting(resource: &Value, without: &[&str]) -> BTreeMap<String, Value> {
    let own = resource.as_object().into_iter().flatten();
    let own = own.filter(|(key, _)| !["id", "name", "type", "properties"].contains(&key.as_str()));
    let properties = resource["properties"].as_object().into_iter().flatten();
    let all = own.chain(properties.filter(|(key, _)| !without.contains(&key.as_str())));
    let lasting = all.filter(|(key, _)| *key != "etag" && *key != "provisioningState");
    lasting.map(|(key, value)| (key.clone(), without_etags(value))).collect()
}

fn without_etags(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, _)| *key != "etag" && *key != "provisioningState");
            Value::Object(kept.map(|(key, value)| (key.clone(), without_etags(value))).collect())
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

    fn told(before: &str, after: &str) -> Vec<String> {
        differences(&balancer(before), Some(&balancer(after)), &Filter::default())
    }

    fn pool(name: &str, entries: &str, more: &str) -> String {
        format!(r#"{{"name":"{name}","etag":"x","properties":{{"{ADDRESSES}":[{entries}]{more}}}}}"#)
    }

    #[test]
    fn members_states_fields_and_pools_that_differ_are_told_and_etags_are_not() {
        let one = r#"{"name":"n1","properties":{"ipAddress":"10.0.0.1","provisioningState":"Updating"}}"#;
        let down = r#"{"name":"n1","properties":{"ipAddress":"10.0.0.1","adminState":"Down"}}"#;
        let two = r#"{"name":"n2","properties":{"ipAddress":"10.0.0.2"}}"#;
        let nic = r#"{"name":"guid","properties":{"networkInterfaceIPConfiguration":{"id":"/nic"}}}"#;
        let same = r#","provisioningState":"Succeeded""#;
        assert_eq!(told(&pool("p", one, ""), &pool("P", one, same)), Vec::<String>::new());
        assert_eq!(
            told(&pool("p", one, ""), &pool("p", two, "")),
            ["lb/p: 10.0.0.1 (n1) has gone", "lb/p: 10.0.0.2 (n2) has come"]
        );
        assert_eq!(
            told(&pool("p", one, ""), &pool("p", down, "")),
            ["lb/p: 10.0.0.1 (n1): adminState was None and is Down"]
        );
        assert_eq!(told(&pool("p", nic, ""), &pool("p", "", "")), ["lb/p: guid has gone"]);
        assert_eq!(
            told(&pool("p", "", ""), &pool("p", "", r#","syncMode":"Manual""#)),
            ["lb/p: syncMode is different"]
        );
        assert_eq!(told(&pool("p", "", ""), &pool("q", "", "")), ["lb/p is gone", "lb/q is new"]);
        let moved = r#"{"name":"n1","properties":{"ipAddress":"10.0.0.1","adminState":"Up","virtualNetwork":{"id":"/v"}}}"#;
        assert_eq!(
            told(&pool("p", one, ""), &pool("p", moved, "")),
            [
                "lb/p: 10.0.0.1 (n1): adminState was None and is Up",
                "lb/p: 10.0.0.1 (n1): virtualNetwork is different"
            ]
        );
        let (here, there) = (r#"{"name":"p","zones":["1"]}"#, r#"{"name":"p","zones":["2"],"id":"/p"}"#);
        assert_eq!(told(here, there), ["lb/p: zones is different"]);
        assert_eq!(differences(&balancer(""), None, &Filter::default()), ["lb is gone"]);
    }
}
