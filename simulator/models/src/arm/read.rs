//! GETs: load balancers, pools, their lists, and operations.

use serde_json::json;

use super::answer::Answer;
use super::operation::{self, End, Operation};
use super::random::Guid;
use super::render::{self, LoadBalancerView, Page, PoolView};
use super::resource_type::Provider;
use super::store::{LoadBalancer, key};
use super::{ArmModel, Call};

impl ArmModel {
    pub(super) fn read_load_balancer(&self, name: &str) -> Answer {
        match self.balancers.get(&key(name)) {
            Some(lb) => {
                let view = LoadBalancerView::of(lb, &self.settings);
                Answer::json(200, render::text(&view)).with("ETag", etag_header(lb))
            }
            None => self.load_balancer_not_found(name),
        }
    }

    pub(super) fn list_load_balancers(&self, call: &Call) -> Answer {
        let skip = skip_token(call);
        let settings = &self.settings;
        let mut shown = self.balancers.values().skip(skip).map(|lb| LoadBalancerView::of(lb, settings));
        let value: Vec<_> = shown.by_ref().take(settings.page_size.max(1)).collect();
        let next_link = shown.next().is_some().then(|| {
            let group = match &call.target.resource_group {
                Some(_) => format!("/resourceGroups/{}", settings.resource_group),
                None => String::new(),
            };
            let subscription = &settings.subscription;
            let path =
                format!("/subscriptions/{subscription}{group}/providers/Microsoft.Network/loadBalancers");
            self.next_link(call, &path, skip + value.len())
        });
        Answer::json(200, render::text(&Page { value: &value, next_link }))
    }

    pub(super) fn read_pool(&self, load_balancer: &str, pool: &str) -> Answer {
        let Some(lb) = self.balancers.get(&key(load_balancer)) else {
            return self.load_balancer_not_found(load_balancer);
        };
        let pool_key = key(pool);
        match lb.pools.get(&pool_key) {
            Some(found) => {
                let view = PoolView::of(lb, &pool_key, found, &self.settings);
                Answer::json(200, render::text(&view)).with("ETag", etag_header(lb))
            }
            None => Answer::not_found(&render::child_id(&lb.id, "backendAddressPools", pool)),
        }
    }

    pub(super) fn list_pools(&self, call: &Call, load_balancer: &str) -> Answer {
        let Some(lb) = self.balancers.get(&key(load_balancer)) else {
            return self.load_balancer_not_found(load_balancer);
        };
        let skip = skip_token(call);
        let settings = &self.settings;
        let mut shown = lb.pools.iter().skip(skip).map(|(key, pool)| PoolView::of(lb, key, pool, settings));
        let value: Vec<_> = shown.by_ref().take(settings.page_size.max(1)).collect();
        let more = shown.next().is_some();
        let path = format!("{}/backendAddressPools", lb.id);
        let next_link = more.then(|| self.next_link(call, &path, skip + value.len()));
        Answer::json(200, render::text(&Page { value: &value, next_link }))
    }

    /// Returns the state of an operation. The body has the outcome; the status is 200 even for failures.
    pub(super) fn poll(&self, call: &Call, id: Option<Guid>) -> Answer {
        let operation = match self.signed_operation(call, id) {
            Ok(operation) => operation,
            Err(refusal) => return refusal,
        };
        let mut body = match &operation.ended {
            None => return self.still_running(Answer::json(200, br#"{"status":"InProgress"}"#.to_vec())),
            Some(End::Succeeded) => json!({"status": "Succeeded"}),
            Some(End::Failed { code, message }) => {
                json!({"status": "Failed", "error": {"code": code, "message": message, "details": []}})
            }
            Some(End::Canceled { code, message }) => {
                let details = [json!({"code": code, "message": message})];
                let error =
                    json!({"code": "Canceled", "message": "Operation was canceled.", "details": details});
                json!({"status": "Canceled", "error": error})
            }
        };
        if let (Provider::Compute, Some(id)) = (operation.provider, id) {
            // The model has no wall clock; recordings hide their times in the same way.
            body["startTime"] = "2001-02-03T04:05:06Z".into();
            body["endTime"] = "2001-02-03T04:05:06Z".into();
            body["name"] = id.to_string().into();
        }
        Answer::json(200, body.to_string().into_bytes())
    }

    /// Returns the result of an operation, for clients that follow `Location`.
    pub(super) fn operation_result(&self, call: &Call, id: Option<Guid>) -> Answer {
        let operation = match self.signed_operation(call, id) {
            Ok(operation) => operation,
            Err(refusal) => return refusal,
        };
        match &operation.ended {
            None => {
                let here = format!("{}{}", self.settings.endpoint, call.request.path_and_query);
                self.still_running(Answer::empty(202)).with("Location", here)
            }
            Some(End::Succeeded) => Answer::empty(204),
            Some(End::Failed { message, .. }) => Answer::provider(409, "OperationFailed", message),
            Some(End::Canceled { message, .. }) => Answer::provider(409, "Canceled", message),
        }
    }

    fn signed_operation(&self, call: &Call, id: Option<Guid>) -> Result<&Operation, Answer> {
        let found = id.and_then(|id| self.operations.get(id).map(|operation| (id, operation)));
        let Some((id, operation)) = found else {
            return Err(Answer::provider(404, "OperationNotFound", "The operation could not be found."));
        };
        if operation::is_signed(self.settings.seed, id, &call.target) {
            Ok(operation)
        } else {
            let message = "The signature of the operation's address is missing or wrong.";
            Err(Answer::gateway(403, "AuthorizationFailed", message))
        }
    }

    fn still_running(&self, answer: Answer) -> Answer {
        match self.settings.operation_retry_after_s {
            Some(seconds) => answer.with("Retry-After", seconds.to_string()),
            None => answer,
        }
    }

    /// Returns the gateway's answer for a missing load balancer. The gateway knows all load balancers.
    pub(super) fn load_balancer_not_found(&self, name: &str) -> Answer {
        let group = &self.settings.resource_group;
        let message = format!(
            "The Resource 'Microsoft.Network/loadBalancers/{name}' under resource group '{group}' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix"
        );
        Answer::gateway(404, "ResourceNotFound", &message)
    }

    pub(super) fn next_link(&self, call: &Call, path: &str, skip: usize) -> String {
        let endpoint = &self.settings.endpoint;
        let version = call.target.query("api-version").unwrap_or_default();
        format!("{endpoint}{path}?api-version={version}&$skipToken={skip}")
    }
}

pub(super) fn skip_token(call: &Call) -> usize {
    call.target.query("$skipToken").and_then(|token| token.parse().ok()).unwrap_or(0)
}

fn etag_header(lb: &LoadBalancer) -> String {
    format!("W/\"{}\"", lb.etag)
}
