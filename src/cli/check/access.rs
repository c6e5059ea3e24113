//! What lists of permissions and locks mean for us.

use serde_json::Value;

/// Something that we do at Azure.
pub(super) struct Need {
    /// The action.
    pub(super) action: &'static str,
    /// Whether nothing can be written without it.
    pub(super) vital: bool,
    /// What does not work without it.
    pub(super) without: &'static str,
}

/// All that we do with load balancers.
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
        without: "Azure may refuse to tell how a write goes on, which then counts as failed whatever became of it",
    },
    Need {
        action: "Microsoft.Network/locations/operationResults/read",
        vital: false,
        without: "Azure may refuse to tell how a write has ended, which then counts as failed whatever became of it",
    },
];

/// What pools with addresses in a virtual network need of that network.
pub(super) const JOIN: &str = "Microsoft.Network/virtualNetworks/joinLoadBalancer/action";

/// What the role assignments of the caller give together.
pub(super) struct Grants(Vec<Grant>);

struct Grant {
    actions: Vec<String>,
    not_actions: Vec<String>,
}

impl Grants {
    /// Reads the entries of a list of permissions; what cannot be read gives nothing.
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

    /// Whether one of them gives an action and does not leave it out again: an action that one assignment leaves out may
    /// come from another.
    pub(super) fn allow(&self, action: &str) -> bool {
        let action = action.to_lowercase();
        let any = |patterns: &[String]| patterns.iter().any(|pattern| means(pattern, &action));
        self.0.iter().any(|grant| any(&grant.actions) && !any(&grant.not_actions))
    }
}

/// Whether a pattern means an action, both in lower case: `*` stands for any text.
fn means(pattern: &str, action: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == action };
    let Some(mut rest) = action.strip_prefix(head) else { return false };
    let (between, last) = tail.rsplit_once('*').unwrap_or(("", tail));
    // The earliest place for each part leaves the most to the parts behind it.
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
    /// The id of what it is on; empty for one that is everywhere.
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

    /// Whether it forbids writes.
    pub(super) fn is_read_only(&self) -> bool {
        self.level.eq_ignore_ascii_case("ReadOnly")
    }

    /// Whether it is on this resource or above it.
    pub(super) fn is_above(&self, id: &str) -> bool {
        is_at(id, &self.scope)
    }

    /// Whether it is on this resource or on a part of it, such as a pool of a load balancer.
    pub(super) fn is_within(&self, id: &str) -> bool {
        is_at(&self.scope, id)
    }
}

/// Whether an id is that of a scope or of something below it.
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
        for (pattern, wanted) in [
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
            assert_eq!(allow(&json!([{ "actions": [pattern] }]), WRITE), wanted, "{pattern}");
        }
        let left_out = json!({ "actions": ["*"], "notActions": ["Microsoft.Network/loadBalancers/*/write"] });
        assert!(!allow(&json!([left_out]), WRITE));
        assert!(allow(&json!([left_out, { "actions": [WRITE] }]), WRITE), "another assignment gives it");
        assert!(!allow(&json!([{}, { "actions": [7] }]), WRITE));
    }

    #[test]
    fn a_lock_is_above_what_its_scope_begins_with() {
        let lock = |scope: &str, level: &str| {
            let id = format!("{scope}/providers/Microsoft.Authorization/locks/l");
            Lock::of(&json!({ "id": id, "name": "l", "properties": { "level": level } })).expect("a lock")
        };
        let lb = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/loadBalancers/kubernetes";
        for (scope, wanted) in [
            ("", true),
            ("/subscriptions/S", true),
            ("/subscriptions/s/resourcegroups/rg", true),
            (lb, true),
            ("/subscriptions/s/resourceGroups/r", false),
            ("/subscriptions/s/resourceGroups/rg/providers/Microsoft.Storage/storageAccounts/a", false),
        ] {
            assert_eq!(lock(scope, "ReadOnly").is_above(lb), wanted, "{scope}");
        }
        let pool = lock(&format!("{lb}/backendAddressPools/a"), "ReadOnly");
        assert!(pool.is_within(lb) && !pool.is_above(lb));
        assert!(!lock(&format!("{lb}2"), "ReadOnly").is_within(lb));
        assert!(lock("", "readonly").is_read_only() && !lock("", "CanNotDelete").is_read_only());
    }
}
