//! Documents between GET and PUT (W3).

use std::collections::{BTreeMap, BTreeSet};

use std::sync::Arc;

use model::arm::{AdminState, Backend, Edit, Entry, EntryNetwork, NewEntry};
use model::ids::{AddressName, InstanceId, NetworkId, SubnetId};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{apply, pool_id, pool_read, response};
use crate::answer;
use crate::document::{EditError, PoolDocument};

fn new_entry(name: &str, network: Option<&str>, admin_state: Option<AdminState>) -> NewEntry {
    NewEntry {
        name: AddressName::new(name),
        ip: "10.0.0.9".parse().unwrap(),
        network: network.map(|id| Arc::new(EntryNetwork::VirtualNetwork(NetworkId::new(id)))),
        admin_state,
    }
}

#[test]
fn w3_text_outside_of_the_addresses_is_unchanged() {
    let text = r#"{"future": [1.10, 123456789012345678901234567890, 1E5, -0.0],"properties":{"x":"\u00e9\/",
        "loadBalancerBackendAddresses":[{"name":"a", "new":1.0,"properties":{"ipAddress":"10.0.0.4","y":9.0e0}},{"name":"b"}],
        "last":null}}"#;
    let edit = Edit {
        set_admin: BTreeMap::from([(0, AdminState::Down), (1, AdminState::Up)]),
        add: vec![new_entry("c", None, Some(AdminState::Down))],
        ..Edit::default()
    };
    assert_eq!(
        apply(text, &edit),
        r#"{"future":[1.10, 123456789012345678901234567890, 1E5, -0.0],"properties":{"x":"\u00e9\/","loadBalancerBackendAddresses":[{"name":"a","new":1.0,"properties":{"ipAddress":"10.0.0.4","y":9.0e0,"adminState":"Down"}},{"name":"b","properties":{"adminState":"Up"}},{"properties":{"ipAddress":"10.0.0.9","adminState":"Down"},"name":"c"}],"last":null}}"#
    );
}

#[test]
fn w3_the_address_array_is_written_even_when_empty() {
    let emptied = Edit { remove: BTreeSet::from([0]), ..Edit::default() };
    let one = r#"{"properties":{"loadBalancerBackendAddresses":[{"name":"a"}],"z":1}}"#;
    assert_eq!(apply(one, &emptied), r#"{"properties":{"loadBalancerBackendAddresses":[],"z":1}}"#);
    for absent in [r#"{"properties":{}}"#, r#"{"properties":{"loadBalancerBackendAddresses":null}}"#] {
        assert_eq!(apply(absent, &Edit::default()), r#"{"properties":{"loadBalancerBackendAddresses":[]}}"#);
    }
}

#[test]
fn w3_new_entries_name_the_network_like_the_pool() {
    let added = |entry, pool_network: Option<&str>, base: &str| {
        let edit =
            Edit { add: vec![entry], pool_network: pool_network.map(NetworkId::new), ..Edit::default() };
        serde_json::from_str::<Value>(&apply(base, &edit)).unwrap()["properties"].clone()
    };
    let plain = added(new_entry("n", None, None), None, r#"{"properties":{}}"#);
    assert_eq!(
        plain,
        json!({"loadBalancerBackendAddresses": [{"name": "n", "properties": {"ipAddress": "10.0.0.9"}}]})
    );
    let entry = json!({"name": "n", "properties": {"ipAddress": "10.0.0.9", "virtualNetwork": {"id": "/v"}, "adminState": "None"}});
    let at_address = added(new_entry("n", Some("/v"), Some(AdminState::None)), None, r#"{"properties":{}}"#);
    assert_eq!(at_address["loadBalancerBackendAddresses"][0], entry);
    let named = NewEntry {
        network: Some(Arc::new(EntryNetwork::Subnet(SubnetId::new("/s")))),
        ..new_entry("n", None, None)
    };
    let by_subnet = added(named, None, r#"{"properties":{}}"#);
    assert_eq!(
        by_subnet,
        json!({"loadBalancerBackendAddresses": [{"name": "n", "properties": {"ipAddress": "10.0.0.9", "subnet": {"id": "/s"}}}]})
    );
    let at_pool = added(new_entry("n", None, None), Some("/v"), r#"{"properties":{"virtualNetwork":null}}"#);
    assert_eq!(at_pool["virtualNetwork"], json!({"id": "/v"}));
    let entry =
        added(new_entry("n", None, None), Some("/v"), r#"{"properties":{"virtualNetwork":{"id":"/old"}}}"#);
    assert_eq!(entry["virtualNetwork"], json!({"id": "/old"}), "an existing network is never changed");
}

#[test]
fn w3_an_unknown_admin_state_is_never_written() {
    let base =
        r#"{"properties":{"loadBalancerBackendAddresses":[{"properties":{"adminState":"Sideways"}}]}}"#;
    let edit = Edit {
        set_admin: BTreeMap::from([(0, AdminState::Unknown)]),
        add: vec![new_entry("n", None, Some(AdminState::Unknown))],
        ..Edit::default()
    };
    let written = apply(base, &edit);
    assert!(written.contains("Sideways") && written.matches("adminState").count() == 1, "{written}");
}

#[test]
fn an_edit_of_a_missing_entry_is_rejected() {
    let try_apply = |text: &str, edit: &Edit| PoolDocument::parse(text).unwrap().apply(edit);
    let one = r#"{"properties":{"loadBalancerBackendAddresses":[{}]}}"#;
    let beyond = Edit { set_admin: BTreeMap::from([(1, AdminState::Up)]), ..Edit::default() };
    assert!(matches!(try_apply(one, &beyond), Err(EditError::MissingEntry { position: 1, length: 1 })));
    assert!(matches!(try_apply("{}", &Edit::default()), Err(EditError::WithoutProperties)));
    assert!(matches!(try_apply(r#"{"properties":3}"#, &Edit::default()), Err(EditError::Malformed { .. })));
    let set = Edit { set_admin: BTreeMap::from([(0, AdminState::Up)]), ..Edit::default() };
    let no_entry = r#"{"properties":{"loadBalancerBackendAddresses":["x"]}}"#;
    assert!(matches!(try_apply(no_entry, &set), Err(EditError::Malformed { .. })));
    assert!(PoolDocument::parse("[]").is_err() && PoolDocument::parse("").is_err());
}

#[test]
fn the_last_value_of_a_repeated_key_counts() {
    let twice = r#"{"sku":{"name":"Standard"},"properties":{"a":1,"a":2},"sku":{"name":"Basic"}}"#;
    let written: Value = serde_json::from_str(&apply(twice, &Edit::default())).unwrap();
    assert_eq!(written["sku"]["name"], "Basic");
    assert_eq!(written["properties"]["a"], 2);
}

/// A pool with network interfaces, as Azure answers a GET of it: entries with GUIDs for names and without an address.
const INTERFACES: &str = r#"{"name":"kubernetes","id":"/lb/backendAddressPools/kubernetes","etag":"W/\"1\"","properties":{"provisioningState":"Succeeded","loadBalancerBackendAddresses":[{"name":"70f3bd40-2344-4c29-8177-768d4c3ca926","id":"/lb/a","etag":"W/\"1\"","properties":{"provisioningState":"Succeeded","networkInterfaceIPConfiguration":{"id":"/subscriptions/s/resourceGroups/MC_rg/providers/Microsoft.Compute/virtualMachineScaleSets/aks-np-12345678-vmss/virtualMachines/0/networkInterfaces/aks-np-12345678-vmss/ipConfigurations/ipconfig1"}},"type":"t"},{"name":"9b0a","properties":{"ipAddress":"","networkInterfaceIPConfiguration":{"id":"/subscriptions/s/resourceGroups/MC_rg/providers/Microsoft.Network/networkInterfaces/aks-pool-12345678-nic-1/ipConfigurations/ipconfig1"},"adminState":"Down"}},{"name":"c3","properties":{"networkInterfaceIPConfiguration":{"id":"/somewhere/else"}}}],"backendIPConfigurations":[{"id":"/x"},{"id":"/y"},{"id":"/z"}],"loadBalancingRules":[{"id":"/lb/loadBalancingRules/r"}]},"type":"Microsoft.Network/loadBalancers/backendAddressPools"}"#;

#[test]
fn n2_entries_of_network_interfaces_name_their_virtual_machine() {
    let facts = pool_read(answer::pool(&pool_id(), &response(200, &[], INTERFACES))).facts;
    assert!(facts.nic_backed);
    let entries: Vec<_> = facts.entries.iter().map(|entry| (entry.backend(), entry.admin_state)).collect();
    let machine = |name: &str| Some(Backend::Instance(InstanceId::new(name)));
    let expected = [
        (machine("AKS-np-12345678-VMSS/0"), AdminState::None),
        (machine("aks-pool-12345678-1"), AdminState::Down),
        (None, AdminState::None),
    ];
    assert_eq!(entries, expected);

    // Entries that the generated models cannot read yield the same facts.
    let odd = INTERFACES
        .replace(r#""ipAddress":"""#, r#""ipAddress":7"#)
        .replace(r#""name":"70f3"#, r#""name":7,"x":"70f3"#);
    let facts = pool_read(answer::pool(&pool_id(), &response(200, &[], &odd))).facts;
    let backends = facts.entries.iter().map(Entry::backend);
    assert!(backends.eq(expected.into_iter().map(|(backend, _)| backend)), "{facts:?}");
}

#[test]
fn n3_only_the_admin_state_of_an_interface_entry_is_set() {
    let facts = pool_read(answer::pool(&pool_id(), &response(200, &[], INTERFACES))).facts;
    let at = |name: &str| {
        let backend = Some(Backend::Instance(InstanceId::new(name)));
        facts.entries.iter().position(|entry| entry.backend() == backend).unwrap()
    };
    let set_admin = BTreeMap::from([
        (at("aks-np-12345678-vmss/0"), AdminState::Down),
        (at("aks-pool-12345678-1"), AdminState::None),
    ]);
    let written = apply(INTERFACES, &Edit { set_admin, ..Edit::default() });
    let expected = INTERFACES
        .replace(
            r#"aks-np-12345678-vmss/ipConfigurations/ipconfig1"}}"#,
            r#"aks-np-12345678-vmss/ipConfigurations/ipconfig1"},"adminState":"Down"}"#,
        )
        .replace(
            r#"ipconfig1"},"adminState":"Down"}},{"name":"c3""#,
            r#"ipconfig1"},"adminState":"None"}},{"name":"c3""#,
        );
    assert_eq!(written.matches(r#""adminState":"Down""#).count(), 1);
    assert_eq!(written, expected);
}

#[test]
fn n2_a_pool_of_network_interfaces_alone_has_no_entry() {
    let alone = r#"{"properties":{"backendIPConfigurations":[{"id":"/x"}]}}"#;
    let facts = pool_read(answer::pool(&pool_id(), &response(200, &[], alone))).facts;
    assert!(facts.nic_backed && facts.entries.is_empty());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(".{0,6}", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Returns an arbitrary object, with keys that no edit touches.
fn extras() -> impl Strategy<Value = serde_json::Map<String, Value>> {
    btree_map("x.{0,4}", any_json(), 0..4).prop_map(|map| map.into_iter().collect())
}

prop_compose! {
    fn entry()(mut entry in extras(), properties in proptest::option::of(extras())) -> Value {
        if let Some(properties) = properties {
            entry.insert("properties".to_owned(), Value::Object(properties));
        }
        Value::Object(entry)
    }
}

/// Returns a document with entries, and an edit of them.
fn edited() -> impl Strategy<Value = (String, Edit)> {
    (extras(), extras(), extras(), vec(entry(), 0..6)).prop_flat_map(
        |(mut whole, mut properties, tail, entries)| {
            let length = entries.len();
            properties.insert("loadBalancerBackendAddresses".to_owned(), Value::from(entries));
            properties.extend(tail);
            whole.insert("properties".to_owned(), Value::Object(properties));
            let states = prop_oneof![Just(AdminState::Down), Just(AdminState::None)];
            let remove = btree_set(0..length.max(1), 0..=length);
            let set_admin = btree_map(0..length.max(1), states, 0..=length);
            (Just(Value::Object(whole).to_string()), remove, set_admin, 0..3usize).prop_map(
                |(text, remove, set_admin, added)| {
                    let add = (0..added).map(|n| new_entry(&format!("new-{n}"), None, None)).collect();
                    (text, Edit { remove, add, set_admin, pool_network: None })
                },
            )
        },
    )
}

proptest! {
    #[test]
    fn w3_an_edit_loses_nothing_outside_the_entries_it_names((text, edit) in edited()) {
        let whole: Value = serde_json::from_str(&text).unwrap();
        let written: Value = serde_json::from_str(&apply(&text, &edit)).unwrap();
        let entries = |value: &Value| value["properties"]["loadBalancerBackendAddresses"].as_array().unwrap().clone();
        let list = entries(&written);
        let without = |mut value: Value| {
            value["properties"]["loadBalancerBackendAddresses"] = Value::Null;
            value.to_string()
        };
        prop_assert_eq!(without(written), without(whole.clone()));
        let mut expected = Vec::new();
        for (position, mut entry) in entries(&whole).into_iter().enumerate() {
            if edit.remove.contains(&position) {
                continue;
            }
            match edit.set_admin.get(&position) {
                Some(AdminState::Down) => entry["properties"]["adminState"] = Value::from("Down"),
                Some(AdminState::None) => entry["properties"]["adminState"] = Value::from("None"),
                Some(AdminState::Up | AdminState::Unknown) | None => {}
            }
            expected.push(entry.to_string());
        }
        prop_assert_eq!(list.len(), expected.len() + edit.add.len());
        let entry: Vec<String> = list.iter().take(expected.len()).map(Value::to_string).collect();
        prop_assert_eq!(entry, expected);
    }

    #[test]
    fn w3_an_empty_edit_writes_the_document_back((text, _) in edited()) {
        prop_assert_eq!(apply(&text, &Edit::default()), text);
    }
}
