//! Microsoft.Authorization: the caller's permissions, and management locks (reference: the REST API's `permissions`
//! 2022-04-01 and `locks` 2016-09-01). The model has one caller.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answer::Answer;
use super::path::Route;
use super::resource_type::Part;
use super::settings::Settings;
use super::{ArmModel, Call, Method};

/// Actions of one role assignment of the caller, at every scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Permission {
    /// Allowed actions; `*` matches any text.
    pub actions: Vec<String>,
    /// Excluded actions.
    pub not_actions: Vec<String>,
}

impl Default for Permission {
    fn default() -> Self {
        Self { actions: vec!["*".to_owned()], not_actions: Vec::new() }
    }
}

/// A management lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Lock {
    /// Name of the lock.
    pub name: String,
    /// `ReadOnly` or `CanNotDelete`.
    pub level: String,
    /// Id of the locked scope: the subscription, the resource group or a load balancer.
    pub scope: String,
}

impl Permission {
    pub(super) fn gives(&self, action: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, action));
        any(&self.actions) && !any(&self.not_actions)
    }
}

impl ArmModel {
    /// Refuses actions that the caller may not do, or that a lock forbids.
    pub(super) fn authorize(&self, call: &Call) -> Result<(), Answer> {
        let Some(action) = action(call.request.method, &call.target.route) else { return Ok(()) };
        let scope = call.request.path_and_query.split('?').next().unwrap_or_default();
        if !self.settings.permissions.iter().any(|permission| permission.gives(&action)) {
            let message = format!(
                "The client 'simulated' with object id '00000000-0000-0000-0000-000000000000' does not have authorization to perform action '{action}' over scope '{scope}' or the scope is invalid. If access was recently granted, please refresh your credentials."
            );
            return Err(Answer::gateway(403, "AuthorizationFailed", &message));
        }
        let writes = !matches!(call.request.method, Method::Get | Method::Head);
        let deletes = call.request.method == Method::Delete;
        let forbids = |lock: &&Lock| match lock.level.as_str() {
            "ReadOnly" => writes,
            "CanNotDelete" => deletes,
            _ => false,
        };
        let word = if deletes { "delete" } else { "write" };
        let lock = self.settings.locks.iter().find(|lock| forbids(lock) && is_at(scope, &lock.scope));
        match lock {
            Some(lock) => {
                let message = format!(
                    "The scope '{scope}' cannot perform {word} operation because following scope(s) are locked: '{}'. Please remove the lock and try again.",
                    lock.scope
                );
                Err(Answer::gateway(409, "ScopeLocked", &message))
            }
            None => Ok(()),
        }
    }

    /// Lists the caller's permissions; they are the same at every scope.
    pub(super) fn list_permissions(&self) -> Answer {
        let all = self.settings.permissions.iter().map(|permission| {
            json!({"actions": permission.actions, "notActions": permission.not_actions,
                "dataActions": [], "notDataActions": []})
        });
        page(all.collect())
    }

    /// Lists the locks at a scope and below it; with the filter `atScope()`, those at it and above.
    pub(super) fn list_locks(&self, call: &Call, scope: &str) -> Answer {
        let above = call.target.query("$filter") == Some("atScope()");
        let shown = self
            .settings
            .locks
            .iter()
            .filter(|lock| if above { is_at(scope, &lock.scope) } else { is_at(&lock.scope, scope) });
        let all = shown.map(|lock| {
            json!({"properties": {"level": lock.level}, "type": "Microsoft.Authorization/locks", "name": lock.name,
                "id": format!("{}/providers/Microsoft.Authorization/locks/{}", lock.scope, lock.name)})
        });
        page(all.collect())
    }
}

fn page(value: Vec<Value>) -> Answer {
    Answer::json(200, json!({"value": value}).to_string().into_bytes())
}

/// Returns whether a resource is at a scope or below it.
fn is_at(resource: &str, scope: &str) -> bool {
    let (resource, scope) = (resource.to_lowercase(), scope.to_lowercase());
    resource
        .strip_prefix(scope.trim_end_matches('/'))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the action that a request needs; polls need none, as their URLs are signed.
fn action(method: Method, route: &Route) -> Option<String> {
    let kind = match route {
        Route::LoadBalancers | Route::LoadBalancer { .. } => "Microsoft.Network/loadBalancers".to_owned(),
        Route::LoadBalancerAction { action, .. } => {
            return Some(format!("Microsoft.Network/loadBalancers/{action}/action"));
        }
        Route::Pools { .. } | Route::Pool { .. } => {
            "Microsoft.Network/loadBalancers/backendAddressPools".to_owned()
        }
        Route::Permissions => "Microsoft.Authorization/permissions".to_owned(),
        Route::Locks { .. } => "Microsoft.Authorization/locks".to_owned(),
        Route::Resource(path) => {
            if let (Part::Action(action), Method::Post) = (&path.part, method) {
                return Some(format!("{}/{action}/action", path.kind.name()));
            }
            path.kind.name()
        }
        Route::ResourceGroup => "Microsoft.Resources/subscriptions/resourceGroups".to_owned(),
        Route::Usages => "Microsoft.Network/locations/usages".to_owned(),
        Route::Operation { .. } | Route::OperationResult { .. } | Route::Elsewhere => return None,
    };
    // Deleting a pool has required the right to write it so far.
    let deletes = !matches!(route, Route::Pools { .. } | Route::Pool { .. });
    let verb = match method {
        Method::Get | Method::Head => "read",
        Method::Delete if deletes => "delete",
        Method::Put | Method::Post | Method::Patch | Method::Delete | Method::Other => "write",
    };
    Some(format!("{kind}/{verb}"))
}

/// Returns whether a pattern matches an action: without case, `*` for any text.
fn matches(pattern: &str, action: &str) -> bool {
    let (pattern, action) = (pattern.to_lowercase(), action.to_lowercase());
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = action.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

impl Settings {
    /// Returns the id of the resource group.
    #[must_use]
    pub fn resource_group_id(&self) -> String {
        format!("/subscriptions/{}/resourceGroups/{}", self.subscription, self.resource_group)
    }
}
