//! Authenticates and authorizes clients of the admin API: the API server decides, by a TokenReview and a
//! SubjectAccessReview (docs/design/surface.md, H2). Tokens are never shown or stored; a verdict is cached for some
//! seconds.

mod auth_cache;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{Method, StatusCode};
use kube::Client;
use model::object::{REQUEST_TIMEOUT, RequestFailure};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::object_api::{exchange, refusal_without};
use super::sanitize::safe_text_without;
use auth_cache::{CacheKey, VerdictCache};

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Decision of the API server about a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// This user is authorized.
    Allowed(Arc<str>),
    /// This user is not authorized; with the reason, if one was given.
    Denied(Arc<str>, Arc<str>),
    /// The token belongs to no user; with the reason, if one was given.
    Unknown(Arc<str>),
    /// The API server did not decide.
    Unanswered(RequestFailure),
}

/// Number of concurrent reviews. Any client that reaches the listener can request one, and renewals of leadership
/// must not wait behind them at the API server.
const MAX_CONCURRENT: usize = 8;

/// Timeout of a request that waits for a permit.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(3);

/// Requests reviews from the API server.
#[derive(Clone)]
pub struct Reviewer {
    client: Client,
    /// Runtime of all requests to the API server.
    runtime: Handle,
    permits: Arc<Semaphore>,
    /// Cached verdicts; read and replaced on the threads of all listeners.
    cache: Arc<ArcSwap<VerdictCache>>,
}

impl Reviewer {
    /// Creates a reviewer that uses this client, on the current runtime.
    #[must_use]
    pub fn new(client: Client) -> Reviewer {
        Reviewer {
            client,
            runtime: Handle::current(),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            cache: Arc::new(ArcSwap::from_pointee(VerdictCache::default())),
        }
    }

    /// Returns a reviewer with its own limit of concurrent reviews: requests to another listener do not delay requests
    /// here.
    #[must_use]
    pub fn with_own_limit(&self) -> Reviewer {
        Reviewer { permits: Arc::new(Semaphore::new(MAX_CONCURRENT)), ..self.clone() }
    }

    /// Reviews a token: its user, and whether that user may use this verb on this path.
    pub async fn review(&self, token: &str, path: &str, verb: &str) -> Verdict {
        match self.permit().await {
            Ok(permit) => self.run_review(permit, [token, path, verb], None).await,
            Err(failure) => Verdict::Unanswered(failure),
        }
    }

    /// Reviews a token, or returns a verdict of the last 10 s: for resources that clients read repeatedly. Equal
    /// concurrent requests cause at most one review per free permit.
    pub async fn review_cached(&self, token: &str, path: &str, verb: &str) -> Verdict {
        let key = CacheKey::new(token, path, verb);
        let cached = || self.cache.load().of(Instant::now(), key).cloned();
        if let Some(verdict) = cached() {
            return verdict;
        }
        let permit = match self.permit().await {
            Ok(permit) => permit,
            Err(failure) => return Verdict::Unanswered(failure),
        };
        if let Some(verdict) = cached() {
            return verdict;
        }
        self.run_review(permit, [token, path, verb], Some((Instant::now(), key))).await
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, RequestFailure> {
        match tokio::time::timeout(PERMIT_TIMEOUT, Arc::clone(&self.permits).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(RequestFailure::Other("too many reviews are in progress".into())),
        }
    }

    /// Runs a review on the runtime of all other requests, and to its end even if the client has gone. Connections to
    /// the API server are shared with renewals of leadership: they must neither depend on a listener's thread nor be
    /// closed by clients. The verdict is cached before the next request gets the permit.
    async fn run_review(
        &self,
        permit: OwnedSemaphorePermit,
        request: [&str; 3],
        key: Option<(Instant, CacheKey)>,
    ) -> Verdict {
        let (this, [token, path, verb]) = (self.clone(), request.map(str::to_owned));
        let task = self.runtime.spawn(async move {
            let _permit = permit;
            let verdict = this.decide(&token, &path, &verb).await.unwrap_or_else(Verdict::Unanswered);
            if let Some((since, key)) = key {
                this.cache.rcu(|cache| cache.with(since, key, &verdict));
            }
            verdict
        });
        let shutting_down = |_| Verdict::Unanswered(RequestFailure::Other("the process ends".into()));
        task.await.unwrap_or_else(shutting_down)
    }

    async fn decide(&self, token: &str, path: &str, verb: &str) -> Result<Verdict, RequestFailure> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token },
        });
        let status = self.create(TOKEN_REVIEWS, &review, token).await?;
        let user = &status["user"];
        let name = user["username"].as_str().filter(|name| !name.is_empty());
        let Some(name) = name.filter(|_| status["authenticated"] == true) else {
            return Ok(Verdict::Unknown(safe_text_of(&status["error"], token)));
        };
        let mut spec = json!({
            "user": name,
            "nonResourceAttributes": { "path": path, "verb": verb },
        });
        for field in ["uid", "groups", "extra"] {
            if !user[field].is_null() {
                spec[field] = user[field].clone();
            }
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec,
        });
        let status = self.create(ACCESS_REVIEWS, &review, token).await?;
        let name = safe_text_of(&user["username"], token);
        Ok(if status["allowed"] == true && status["denied"] != true {
            Verdict::Allowed(name)
        } else {
            Verdict::Denied(name, safe_text_of(&status["reason"], token))
        })
    }

    /// Creates a review, and returns its status. A refusal may repeat the token.
    async fn create(&self, path: &str, review: &Value, token: &str) -> Result<Value, RequestFailure> {
        let body = review.to_string().into_bytes();
        let request = exchange(&self.client, Method::POST, path.to_owned(), body);
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, request).await;
        let no_answer = || {
            let reason = format!("the API server did not answer within {} s", REQUEST_TIMEOUT.as_secs());
            RequestFailure::Other(reason.into())
        };
        let (status, body) = answer.unwrap_or_else(|_| Err(no_answer()))?;
        if !matches!(status, StatusCode::OK | StatusCode::CREATED) {
            return Err(refusal_without(status, &body, &[token]));
        }
        let mut answer: Value = serde_json::from_slice(&body)
            .map_err(|error| format!("a review cannot be read: {error}"))
            .map_err(|reason| RequestFailure::Other(safe_text_without(&reason, &[token])))?;
        Ok(answer.get_mut("status").map(Value::take).unwrap_or_default())
    }
}

/// Returns a text of the answer, without the token.
fn safe_text_of(value: &Value, token: &str) -> Arc<str> {
    safe_text_without(value.as_str().unwrap_or_default(), &[token])
}

#[cfg(test)]
mod tests {
    use simulator::{Fakes, Settings};

    use super::*;

    /// Returns an API server, and a reviewer that uses it.
    async fn start() -> (Fakes, Reviewer) {
        let fakes = Fakes::start(Settings::default()).await.expect("loopback has free ports");
        let mut config = kube::Config::new(fakes.kubernetes_url.parse().expect("an address"));
        config.default_retry = false;
        (fakes, Reviewer::new(Client::try_from(config).expect("a client")))
    }

    /// Returns the number of tokens that the API server has reviewed.
    async fn token_reviews(fakes: &Fakes) -> u64 {
        fakes.cluster.ask(|cluster, _| cluster.model.fault_effects().token_reviews).await
    }

    #[tokio::test]
    async fn h2_a_recent_verdict_is_reused_unless_a_new_one_is_requested() {
        let (fakes, reviewer) = start().await;
        let path = "/azure-backend-pool-controller/api/v1/status";
        for (token, verdict) in [("a-token", "Allowed"), ("outsiders-token", "Denied"), ("nobody", "Unknown")]
        {
            let before = token_reviews(&fakes).await;
            for _ in 0..3 {
                let verdict_text = format!("{:?}", reviewer.review_cached(token, path, "get").await);
                assert!(verdict_text.starts_with(verdict), "{verdict_text}");
            }
            assert_eq!(token_reviews(&fakes).await, before + 1, "{token}");
            reviewer.review_cached(token, path, "put").await;
            reviewer.review_cached(token, "/other", "get").await;
            assert_eq!(token_reviews(&fakes).await, before + 3, "another question");
            reviewer.review(token, path, "get").await;
            assert_eq!(token_reviews(&fakes).await, before + 4, "as it is now");
        }
    }

    #[tokio::test]
    async fn h2_a_missing_answer_is_not_cached() {
        let (fakes, reviewer) = start().await;
        let review = || reviewer.review_cached("a-token", "/path", "get");
        fakes.plant(|model| model.down(true)).await;
        assert!(matches!(review().await, Verdict::Unanswered(_)));
        fakes.plant(|model| model.down(false)).await;
        assert!(matches!(review().await, Verdict::Allowed(_)));
    }

    #[tokio::test]
    async fn h2_many_equal_concurrent_requests_cause_few_reviews() {
        let (fakes, reviewer) = start().await;
        let mut requests = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let reviewer = reviewer.clone();
            requests.spawn(async move { reviewer.review_cached("a-token", "/path", "get").await });
        }
        let verdicts = requests.join_all().await;
        assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Allowed(_))), "{verdicts:?}");
        let reviews = token_reviews(&fakes).await;
        assert!((1..=8).contains(&reviews), "{reviews}");
    }

    #[tokio::test(start_paused = true)]
    async fn h2_eight_reviews_run_at_a_time_and_others_are_refused() {
        // A listener that never answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("an address");
        let address = silent.local_addr().expect("it has one");
        let config = kube::Config::new(format!("http://{address}").parse().expect("an address"));
        let reviewer = Reviewer::new(Client::try_from(config).expect("a client"));
        let mut requests = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let reviewer = reviewer.clone();
            requests.spawn(async move { reviewer.review("a-token", "/api/v1/pause", "post").await });
        }
        let verdicts = requests.join_all().await;
        let is_refused = |verdict: &&Verdict| matches!(verdict, Verdict::Unanswered(RequestFailure::Other(reason)) if reason.contains("too many"));
        assert_eq!(verdicts.iter().filter(is_refused).count(), 20 - MAX_CONCURRENT, "{verdicts:?}");
        assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Unanswered(_))), "{verdicts:?}");
        // These reviews hold all permits here, and none of another listener.
        let all_permits = reviewer.permits.acquire_many(u32::try_from(MAX_CONCURRENT).expect("few")).await;
        assert!(
            all_permits.is_ok()
                && reviewer.permit().await.is_err()
                && reviewer.with_own_limit().permit().await.is_ok()
        );
    }
}
