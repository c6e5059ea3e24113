//! Authenticates and authorizes clients of the admin API: the API server decides, by a TokenReview and a
//! SubjectAccessReview (docs/design/surface.md, H2). Tokens are never shown or stored; a verdict is cached for some
//! seconds.

mod auth_cache;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{Method, StatusCode};
use kube::Client;
use model::object::{ANSWER_WITHIN, RequestFailure};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::exchange::{exchange, refusal_without};
use super::sanitize::safe_text_without;
use auth_cache::{Question, VerdictCache};

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
const AT_ONCE: usize = 8;

/// How long a request waits for its turn.
const TURN_WITHIN: Duration = Duration::from_secs(3);

/// Requests reviews from the API server.
#[derive(Clone)]
pub struct Reviewer {
    client: Client,
    /// Runtime of all requests to the API server.
    runtime: Handle,
    turns: Arc<Semaphore>,
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
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            cache: Arc::new(ArcSwap::from_pointee(VerdictCache::default())),
        }
    }

    /// Returns a reviewer with its own turns: requests to another listener do not delay requests here.
    #[must_use]
    pub fn apart(&self) -> Reviewer {
        Reviewer { turns: Arc::new(Semaphore::new(AT_ONCE)), ..self.clone() }
    }

    /// Reviews a token: its user, and whether that user may use this verb on this path.
    pub async fn review(&self, token: &str, path: &str, verb: &str) -> Verdict {
        match self.turn().await {
            Ok(turn) => self.run_review(turn, [token, path, verb], None).await,
            Err(failure) => Verdict::Unanswered(failure),
        }
    }

    /// Reviews a token, or returns a verdict of the last 10 s: for resources that clients read repeatedly. Equal
    /// concurrent requests cause at most one review per free turn.
    pub async fn review_lately(&self, token: &str, path: &str, verb: &str) -> Verdict {
        let question = Question::new(token, path, verb);
        let known = || self.cache.load().of(Instant::now(), question).cloned();
        if let Some(verdict) = known() {
            return verdict;
        }
        let turn = match self.turn().await {
            Ok(turn) => turn,
            Err(failure) => return Verdict::Unanswered(failure),
        };
        if let Some(verdict) = known() {
            return verdict;
        }
        self.run_review(turn, [token, path, verb], Some((Instant::now(), question))).await
    }

    async fn turn(&self) -> Result<OwnedSemaphorePermit, RequestFailure> {
        match tokio::time::timeout(TURN_WITHIN, Arc::clone(&self.turns).acquire_owned()).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) | Err(_) => Err(RequestFailure::Other("too many others are being judged".into())),
        }
    }

    /// Runs a review on the runtime of all other requests, and to its end even if the client has gone. Connections to
    /// the API server are shared with renewals of leadership: they must neither depend on a listener's thread nor be
    /// closed by clients. The verdict is cached before the next request gets the turn.
    async fn run_review(
        &self,
        turn: OwnedSemaphorePermit,
        asked: [&str; 3],
        question: Option<(Instant, Question)>,
    ) -> Verdict {
        let (this, [token, path, verb]) = (self.clone(), asked.map(str::to_owned));
        let task = self.runtime.spawn(async move {
            let _turn = turn;
            let verdict = this.decide(&token, &path, &verb).await.unwrap_or_else(Verdict::Unanswered);
            if let Some((since, question)) = question {
                this.cache.rcu(|cache| cache.with(since, question, &verdict));
            }
            verdict
        });
        let ends = |_| Verdict::Unanswered(RequestFailure::Other("the process ends".into()));
        task.await.unwrap_or_else(ends)
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
        let answer = tokio::time::timeout(ANSWER_WITHIN, request).await;
        let silence = || {
            let safe_text_of = format!("the API server did not answer within {} s", ANSWER_WITHIN.as_secs());
            RequestFailure::Other(safe_text_of.into())
        };
        let (status, body) = answer.unwrap_or_else(|_| Err(silence()))?;
        if !matches!(status, StatusCode::OK | StatusCode::CREATED) {
            return Err(refusal_without(status, &body, &[token]));
        }
        let mut answer: Value = serde_json::from_slice(&body)
            .map_err(|error| format!("a review cannot be read: {error}"))
            .map_err(|why| RequestFailure::Other(safe_text_without(&why, &[token])))?;
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

    /// An API server, and a reviewer that uses it.
    async fn run_review() -> (Fakes, Reviewer) {
        let fakes = Fakes::start(Settings::default()).await.expect("loopback has free ports");
        let mut config = kube::Config::new(fakes.kubernetes_url.parse().expect("an address"));
        config.default_retry = false;
        (fakes, Reviewer::new(Client::try_from(config).expect("a client")))
    }

    /// Number of tokens that the API server has reviewed.
    async fn token_reviews(fakes: &Fakes) -> u64 {
        fakes.cluster.ask(|cluster, _| cluster.model.fault_effects().token_reviews).await
    }

    #[tokio::test]
    async fn h2_a_recent_verdict_is_reused_unless_a_new_one_is_asked_for() {
        let (fakes, reviewer) = run_review().await;
        let path = "/azure-backend-pool-controller/api/v1/status";
        for (token, verdict) in [("a-token", "Allowed"), ("outsiders-token", "Denied"), ("nobody", "Unknown")]
        {
            let before = token_reviews(&fakes).await;
            for _ in 0..3 {
                let given = format!("{:?}", reviewer.review_lately(token, path, "get").await);
                assert!(given.starts_with(verdict), "{given}");
            }
            assert_eq!(token_reviews(&fakes).await, before + 1, "{token}");
            reviewer.review_lately(token, path, "put").await;
            reviewer.review_lately(token, "/other", "get").await;
            assert_eq!(token_reviews(&fakes).await, before + 3, "another question");
            reviewer.review(token, path, "get").await;
            assert_eq!(token_reviews(&fakes).await, before + 4, "as it is now");
        }
    }

    #[tokio::test]
    async fn h2_that_nobody_answered_is_not_kept() {
        let (fakes, reviewer) = run_review().await;
        let ask = || reviewer.review_lately("a-token", "/path", "get");
        fakes.plant(|model| model.down(true)).await;
        assert!(matches!(ask().await, Verdict::Unanswered(_)));
        fakes.plant(|model| model.down(false)).await;
        assert!(matches!(ask().await, Verdict::Allowed(_)));
    }

    #[tokio::test]
    async fn h2_of_many_who_ask_the_same_at_once_few_are_judged() {
        let (fakes, reviewer) = run_review().await;
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let reviewer = reviewer.clone();
            asked.spawn(async move { reviewer.review_lately("a-token", "/path", "get").await });
        }
        let verdicts = asked.join_all().await;
        assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Allowed(_))), "{verdicts:?}");
        let run_review = token_reviews(&fakes).await;
        assert!((1..=8).contains(&run_review), "{run_review}");
    }

    #[tokio::test(start_paused = true)]
    async fn h2_eight_are_judged_at_once_and_the_others_are_refused() {
        // A listener that never answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("an address");
        let address = silent.local_addr().expect("it has one");
        let config = kube::Config::new(format!("http://{address}").parse().expect("an address"));
        let reviewer = Reviewer::new(Client::try_from(config).expect("a client"));
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let reviewer = reviewer.clone();
            asked.spawn(async move { reviewer.review("a-token", "/api/v1/pause", "post").await });
        }
        let verdicts = asked.join_all().await;
        let turned_away = |verdict: &&Verdict| matches!(verdict, Verdict::Unanswered(RequestFailure::Other(why)) if why.contains("too many"));
        assert_eq!(verdicts.iter().filter(turned_away).count(), 20 - AT_ONCE, "{verdicts:?}");
        assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Unanswered(_))), "{verdicts:?}");
        // These reviews hold all turns, and none of another listener.
        let holds = reviewer.turns.acquire_many(u32::try_from(AT_ONCE).expect("few")).await;
        assert!(holds.is_ok() && reviewer.turn().await.is_err() && reviewer.apart().turn().await.is_ok());
    }
}
