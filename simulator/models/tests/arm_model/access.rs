//! The caller's permissions, and management locks.

use serde_json::json;
use simulator_models::arm::{Lock, Permission, Settings};

use crate::support::{GROUP, code, get, holding, ips, json_of, model, path, put};

fn permission(actions: &[&str], not_actions: &[&str]) -> Permission {
    let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Permission { actions: own(actions), not_actions: own(not_actions) }
}

fn lock(level: &str, scope: &str) -> Lock {
    Lock { name: "l".to_owned(), level: level.to_owned(), scope: scope.to_owned() }
}

#[test]
fn z1_a_request_without_permission_is_403_and_changes_nothing() {
    let mut reader =
        model(Settings { permissions: vec![permission(&["*/read"], &[])], ..Settings::default() });
    assert_eq!(get(&mut reader, &path("lb"), 0).status, 200);
    let refused = put(&mut reader, "lb", "a", &holding(&["10.0.0.9"]), 0);
    assert_eq!((refused.status, code(&refused).as_str()), (403, "AuthorizationFailed"));
    assert_eq!(ips(&reader, "lb", "a"), ["10.0.0.1"]);

    let write = "Microsoft.Network/loadBalancers/*/write";
    let split = vec![permission(&["*"], &[write]), permission(&[write], &[])];
    let mut writer = model(Settings { permissions: split.clone(), ..Settings::default() });
    assert_eq!(put(&mut writer, "lb", "a", &holding(&["10.0.0.9"]), 0).status, 200);
    let scope = format!("{GROUP}/providers/Microsoft.Authorization/permissions?api-version=2022-04-01");
    let listed = json_of(&get(&mut writer, &scope, 0));
    assert_eq!(listed["value"][0]["notActions"], json!([write]));
    assert_eq!(listed["value"].as_array().map(Vec::len), Some(split.len()));
}

#[test]
fn z1_a_read_only_lock_above_forbids_writes_and_is_listed() {
    let lb = format!("{GROUP}/providers/Microsoft.Network/loadBalancers/LB");
    let subscription = GROUP.split("/resourceGroups").next().unwrap_or_default();
    let locks = vec![lock("ReadOnly", &lb), lock("CanNotDelete", GROUP), lock("CanNotDelete", subscription)];
    let mut model = model(Settings { locks, ..Settings::default() });
    let refused = put(&mut model, "lb", "a", &holding(&["10.0.0.9"]), 0);
    assert_eq!((refused.status, code(&refused).as_str()), (409, "ScopeLocked"));
    assert_eq!(put(&mut model, "other", "a", &holding(&["10.0.0.9"]), 0).status, 200);
    assert_eq!(get(&mut model, &path("lb"), 0).status, 200);
    let list = format!("{GROUP}/providers/Microsoft.Authorization/locks?api-version=2016-09-01");
    let mut levels = |address: &str| -> Vec<String> {
        let listed = json_of(&get(&mut model, address, 0));
        let all = listed["value"].as_array().cloned().unwrap_or_default();
        all.iter().map(|it| it["id"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(
        levels(&list),
        [
            format!("{lb}/providers/Microsoft.Authorization/locks/l"),
            format!("{GROUP}/providers/Microsoft.Authorization/locks/l")
        ]
    );
    let above = levels(&format!("{list}&%24filter=atScope%28%29"));
    assert_eq!(
        above,
        [
            format!("{GROUP}/providers/Microsoft.Authorization/locks/l"),
            format!("{subscription}/providers/Microsoft.Authorization/locks/l")
        ]
    );
}
