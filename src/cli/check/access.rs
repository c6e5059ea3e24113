//! Evaluates lists of permissions and locks of Azure.

use serde_json::Value;

/// An action at Azure that the controller needs.
pub(super) struct Need {
    /// The action.
    pub(super) action: &'static str,
    /// Whether the controller can write nothing without it.
    pub(super) vital: bool,
    /// The effect of its absence.
    pub(super) without: &'static str,
}

/// All actions on load balancers that the controller needs.
pub(super) const NEEDS: [Need; 5] = [
    Need {
        action: "Microsoft.Network/loadBalancers/read",
        vital: true,
        without: "the load balancer is not discovered, so its pools are not written",
    },
    Need {
        action: "Microsoft.Network/loadBalancers/backendAddressPools/read",
        vital: true,
        without: "no pool can be read before it is written, so none is written",
    },
    Need {
        action: "Microsoft.Network/loadBalancers/backendAddressPools/write",
        vital: true,
        without: "Azure refuses every write with 403 AuthorizationFailed",
    },
    Need {
        action: "Microsoft.Network/locations/operations/read",
        vital: false,
        without: "Azure may refuse to report the state of a write, which then counts as failed, whether or not it \
                  succeeded",
    },
    Need {
        action: "Microsoft.Network/locations/operationResults/read",
        vital: false,
        without: "Azure may refuse to report the result of a write, which then counts as failed, whether or not it \
                  succeeded",
    },
];

/// The action on a virtual network that pools with addresses in it need.
pub(super) const JOIN: &str = "Microsoft.Network/virtualNetworks/joinLoadBalancer/action";

/// The permissions of all role assignments of the caller.
pub(super) struct Grants(Vec<Grant>);

struct Grant {
    actions: Vec<String>,
    not_actions: Vec<String>,
}

impl Grants {
    /// Reads the entries of a list of permissions; invalid entries grant nothing.
    pub(super) fn of(entries: &[Value]) -> Grants {
        let texts = |value: &Value| -> Vec<String> {
            let all = value.as_array().into_iter().flatten();
            all.filter_map(|text| text.as_str().map(str::to_lowercase)).collect()
        };
        let grant = |entry: &Value| Grant {
            actions: texts(&entry["actions"]),
            not_actions: texts(&entry["notActions"]),
        };
        Grants(entries.iter().map(grant).collect())
    }

    /// Returns whether any role assignment grants an action without excluding it. An action that one assignment
    /// excludes may be granted by another.
    pub(super) fn allow(&self, action: &str) -> bool {
        let action = action.to_lowercase();
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, &action));
        self.0.iter().any(|grant| any(&grant.actions) && !any(&grant.not_actions))
    }
}

/// Returns whether a pattern matches an action, both in lower case; `*` matches any text.
fn matches(pattern: &str, action: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == action };
    let Some(mut rest) = action.strip_prefix(head) else { return false };
    let (between, last) = tail.rsplit_once('*').unwrap_or(("", tail));
    // Matching each part as early as possible leaves the most text for the parts after it.
    for part in between.split('*') {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

/// A management lock.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Lock {
    /// Its name.
    pub(super) name: String,
    /// The id of its scope; empty if it applies everywhere.
    pub(super) scope: String,
    level: String,
}

impl Lock {
    /// Reads an entry of a list of locks.
    pub(super) fn of(entry: &Value) -> Option<Lock> {
        let id = entry["id"].as_str()?;
        let at = id.to_lowercase().rfind("/providers/microsoft.authorization/locks/")?;
        let name = entry["name"].as_str().or_else(|| id.rsplit('/').next())?;
        let level = entry["properties"]["level"].as_str()?;
        Some(Lock { name: name.to_owned(), scope: id[..at].to_owned(), level: level.to_owned() })
    }

    /// Returns whether the lock forbids writes.
    pub(super) fn is_read_only(&self) -> bool {
        self.level.eq_ignore_ascii_case("ReadOnly")
    }

    /// Returns whether the lock is on this resource or above it.
    pub(super) fn is_above(&self, id: &str) -> bool {
        is_at(id, &self.scope)
    }

    /// Returns whether the lock is on this resource or on a part of it, such as a pool of a load balancer.
    pub(super) fn is_within(&self, id: &str) -> bool {
        is_at(&self.scope, id)
    }
}

/// Returns whether an id is that of a scope or of something below it.
fn is_at(id: &str, scope: &str) -> bool {
    let (id, scope) = (id.to_lowercase(), scope.to_lowercase());
    id.strip_prefix(&scope).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WRITE: &str = "Microsoft.Network/loadBalancers/backendAddressPools/write";

    fn allow(entries: &Value, action: &str) -> bool {
        Grants::of(entries.as_array().expect("a list")).allow(action)
    }

    #[test]
    fn an_action_is_allowed_by_any_pattern_that_does_not_exclude_it() {
        for (pattern, expected) in [
            ("*", true),
            ("microsoft.network/*", true),
            ("Microsoft.Network/*/write", true),
            ("Microsoft.Network/loadBalancers/*/write", true),
            ("*/read", false),
            ("Microsoft.Network/loadBalancers/write", false),
            ("Microsoft.Network/loadBalancers/backendAddressPools/writ", false),
            ("Microsoft.Compute/*", false),
            ("*/loadBalancers/*/backendAddressPools/*", false),
            ("*loadBalancers*write*", true),
            ("*/write*/write", false),
            ("**", true),
            ("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*z", false),
        ] {
            assert_eq!(allow(&json!([{ "actions": [pattern] }]), WRITE), expected, "{pattern}");
        }
        let excluded = json!({ "actions": ["*"], "notActions": ["Microsoft.Network/loadBalancers/*/write"] });
        assert!(!allow(&json!([excluded]), WRITE));
        assert!(allow(&json!([excluded, { "actions": [WRITE] }]), WRITE), "another assignment gives it");
        assert!(!allow(&json!([{}, { "actions": [7] }]), WRITE));
    }

    #[test]
    fn a_lock_is_above_the_resources_of_its_scope() {
        let lock = |scope: &str, level: &str| {
            let id = format!("{scope}/providers/Microsoft.Authorization/locks/l");
            Lock::of(&json!({ "id": id, "name": "l", "properties": { "level": level } })).expect("a lock")
        };
        let lb = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/loadBalancers/kubernetes";
        for (scope, expected) in [
            ("", true),
            ("/subscriptions/S", true),
            ("/subscriptions/s/resourcegroups/rg", true),
            (lb, true),
            ("/subscriptions/s/resourceGroups/r", false),
            ("/subscriptions/s/resourceGroups/rg/providers/Microsoft.Storage/storageAccounts/a", false),
        ] {
            assert_eq!(lock(scope, "ReadOnly").is_above(lb), expected, "{scope}");
        }
        let pool = lock(&format!("{lb}/backendAddressPools/a"), "ReadOnly");
        assert!(pool.is_within(lb) && !pool.is_above(lb));
        assert!(!lock(&format!("{lb}2"), "ReadOnly").is_within(lb));
        assert!(lock("", "readonly").is_read_only() && !lock("", "CanNotDelete").is_read_only());
    }
}
