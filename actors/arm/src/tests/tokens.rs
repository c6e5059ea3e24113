//! The task that owns the tokens: it runs the machine's outputs for callers that wait at the same time or stop waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use azure_core::credentials::{AccessToken, Secret, TokenCredential, TokenRequestOptions};
use azure_core::error::{Error, ErrorKind};
use azure_core::time::OffsetDateTime;
use model::machine::Wall;
use tokio::time::Instant;

use super::{NOW, WALL};
use crate::Clocks;
use crate::credential::{CredentialFactory, Tokens};

/// Reaction of an authority to a request.
#[derive(Clone, Copy)]
enum Does {
    /// Gives a token with this lifetime in seconds.
    Give(u64),
    /// Refuses.
    Refuse,
    /// Waits for this many seconds, and then gives a token with a lifetime of an hour.
    Hang(u64),
}

struct Authority {
    clocks: Clocks,
    does: &'static [Does],
    requests: Arc<AtomicU32>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

#[async_trait::async_trait]
impl TokenCredential for Authority {
    async fn get_token(
        &self,
        scopes: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        assert_eq!(scopes, ["scope"]);
        let n = self.requests.fetch_add(1, Ordering::SeqCst);
        let good_for = match self.does[usize::try_from(n).unwrap()] {
            Does::Give(seconds) => seconds,
            Does::Refuse => return Err(Error::with_message(ErrorKind::Credential, "no")),
            Does::Hang(seconds) => {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                3_600
            }
        };
        let now = i128::from(self.clocks.wall().as_micros()) * 1_000;
        let expires_on =
            OffsetDateTime::from_unix_timestamp_nanos(now).unwrap() + Duration::from_secs(good_for);
        Ok(AccessToken::new(Secret::new(format!("token-{}", n + 1)), expires_on))
    }
}

/// Number of token requests, and of created credentials.
#[derive(Clone, Default)]
struct Counts {
    requests: Arc<AtomicU32>,
    made: Arc<AtomicU32>,
}

impl Counts {
    fn requests(&self) -> u32 {
        self.requests.load(Ordering::SeqCst)
    }
}

fn tokens(does: &'static [Does]) -> (Arc<Tokens>, Counts) {
    let counts = Counts::default();
    let counted = counts.clone();
    let (clocks, theirs) = (clocks(), clocks());
    let make: CredentialFactory = Arc::new(move || {
        counted.made.fetch_add(1, Ordering::SeqCst);
        let (clocks, requests) = (theirs.clone(), Arc::clone(&counted.requests));
        let authority: Arc<dyn TokenCredential> = Arc::new(Authority { clocks, does, requests });
        Ok(authority)
    });
    (Arc::new(Tokens::with_factory(make, "scope".to_owned(), clocks).unwrap()), counts)
}

/// Clocks that follow the runtime's time, which the test has paused.
fn clocks() -> Clocks {
    let began = Instant::now();
    let micros = move || i64::try_from(began.elapsed().as_micros()).unwrap();
    Clocks {
        now: Arc::new(move || NOW.plus(began.elapsed())),
        wall: Arc::new(move || Wall::from_micros(WALL.as_micros() + micros())),
    }
}

async fn token(tokens: &Tokens) -> Result<String, String> {
    let token = tokens.token().await;
    token.map(|token| token.token.secret().to_owned()).map_err(|error| error.to_string())
}

#[tokio::test(start_paused = true)]
async fn c3_a_hanging_renewal_delays_no_call() {
    let (tokens, counts) = tokens(&[Does::Give(200), Does::Hang(20), Does::Refuse]);
    assert_eq!(token(&tokens).await.unwrap(), "token-1");
    tokio::time::advance(Duration::from_secs(10)).await;
    let began = Instant::now();
    for _ in 0..5 {
        assert_eq!(token(&tokens).await.unwrap(), "token-1");
    }
    assert_eq!((began.elapsed(), counts.requests()), (Duration::ZERO, 2));
    tokio::time::sleep(Duration::from_secs(21)).await;
    assert_eq!(token(&tokens).await.unwrap(), "token-2");
    assert_eq!(counts.requests(), 2);
}

#[tokio::test(start_paused = true)]
async fn c3_without_a_token_a_hanging_request_is_repeated_after_30_s() {
    let (tokens, counts) = tokens(&[Does::Hang(31), Does::Give(3_600)]);
    let began = Instant::now();
    assert!(token(&tokens).await.unwrap_err().contains("no token in time"));
    assert_eq!(began.elapsed(), Duration::from_secs(30));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(token(&tokens).await.unwrap(), "token-2", "the answer to an abandoned request is ignored");
    assert_eq!(counts.requests(), 2);
}

#[tokio::test(start_paused = true)]
async fn c3_many_calls_without_a_token_share_one_refusal() {
    let (tokens, counts) = tokens(&[Does::Refuse, Does::Refuse]);
    let calls = (0..100).map(|_| {
        let tokens = Arc::clone(&tokens);
        tokio::spawn(async move { token(&tokens).await })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap().unwrap_err(), "no");
    }
    assert_eq!(counts.requests(), 1);
}

#[tokio::test(start_paused = true)]
async fn c3_a_token_request_continues_without_its_call() {
    let (tokens, counts) = tokens(&[Does::Hang(5), Does::Refuse]);
    let left = tokio::time::timeout(Duration::from_secs(1), token(&tokens)).await;
    assert!(left.is_err(), "the call has ended");
    assert_eq!(token(&tokens).await.unwrap(), "token-1");
    assert_eq!(counts.requests(), 1);
}

#[tokio::test(start_paused = true)]
async fn w5_a_token_that_azure_refused_is_not_used_again() {
    let (tokens, counts) = tokens(&[Does::Give(3_600), Does::Give(3_600), Does::Refuse]);
    let refused = tokens.token().await.unwrap();
    for _ in 0..3 {
        tokens.rejected(refused.clone()).await;
        assert_eq!(token(&tokens).await.unwrap(), "token-2");
    }
    assert_eq!((counts.requests(), counts.made.load(Ordering::SeqCst)), (2, 2));
}
