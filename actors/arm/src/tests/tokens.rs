//! Tokens that are about to expire while the authority does not answer: nobody waits long, and nobody is without one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use azure_core::credentials::{AccessToken, Secret, TokenCredential, TokenRequestOptions};
use azure_core::error::{Error, ErrorKind};
use azure_core::time::OffsetDateTime;
use pool_core::machine::Wall;
use tokio::time::Instant;

use super::{NOW, WALL};
use crate::Clocks;
use crate::credential::Renewable;

/// What an authority does when it is asked.
#[derive(Clone, Copy)]
enum Does {
    /// It gives a token that is good for so many seconds.
    Give(u64),
    /// It refuses.
    Refuse,
    /// It says nothing for so many seconds, and then gives a token that is good for an hour.
    Hang(u64),
}

struct Authority {
    clocks: Clocks,
    does: &'static [Does],
    asked: Arc<AtomicU32>,
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
        _: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let n = self.asked.fetch_add(1, Ordering::SeqCst);
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

fn renewable(does: &'static [Does]) -> (Renewable, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    let (clocks, theirs) = (clocks(), clocks());
    let make = move || {
        let (clocks, asked) = (theirs.clone(), Arc::clone(&counted));
        let authority: Arc<dyn TokenCredential> = Arc::new(Authority { clocks, does, asked });
        Ok(authority)
    };
    (Renewable::made_by(Box::new(make), clocks).unwrap(), asked)
}

/// Clocks that go with the runtime's time, which the test has stopped.
fn clocks() -> Clocks {
    let began = Instant::now();
    let micros = move || i64::try_from(began.elapsed().as_micros()).unwrap();
    Clocks {
        now: Arc::new(move || NOW.plus(began.elapsed())),
        wall: Arc::new(move || Wall::from_micros(WALL.as_micros() + micros())),
    }
}

async fn token(renewable: &Renewable) -> Result<String, String> {
    let token = renewable.get_token(&["scope"], None).await;
    token.map(|token| token.token.secret().to_owned()).map_err(|error| error.to_string())
}

#[tokio::test(start_paused = true)]
async fn c3_a_refresh_that_hangs_delays_one_call_in_ten_seconds_by_three_while_the_old_token_is_good() {
    let (renewable, asked) = renewable(&[Does::Give(200), Does::Hang(20), Does::Hang(20), Does::Refuse]);
    assert_eq!(token(&renewable).await.unwrap(), "token-1");
    let began = Instant::now();
    assert_eq!(token(&renewable).await.unwrap(), "token-1");
    assert_eq!(began.elapsed(), Duration::from_secs(3));
    for _ in 0..5 {
        assert_eq!(token(&renewable).await.unwrap(), "token-1");
    }
    assert_eq!((began.elapsed(), asked.load(Ordering::SeqCst)), (Duration::from_secs(3), 2));
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(token(&renewable).await.unwrap(), "token-1");
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn c3_a_refresh_that_comes_late_is_not_lost() {
    let (renewable, asked) = renewable(&[Does::Give(200), Does::Hang(5), Does::Refuse]);
    assert_eq!(token(&renewable).await.unwrap(), "token-1");
    assert_eq!(token(&renewable).await.unwrap(), "token-1");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(token(&renewable).await.unwrap(), "token-2");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn c3_a_refused_refresh_is_not_repeated_for_ten_seconds_and_then_is() {
    let (renewable, asked) = renewable(&[Does::Give(200), Does::Refuse, Does::Give(3_600)]);
    for _ in 0..4 {
        assert_eq!(token(&renewable).await.unwrap(), "token-1");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(token(&renewable).await.unwrap(), "token-3");
}

#[tokio::test(start_paused = true)]
async fn c3_without_a_good_token_the_refusal_is_told_and_the_next_call_asks_again() {
    let (renewable, asked) = renewable(&[Does::Give(5), Does::Refuse, Does::Hang(31), Does::Give(3_600)]);
    assert_eq!(token(&renewable).await.unwrap(), "token-1");
    assert!(token(&renewable).await.unwrap_err().contains("no"));
    let began = Instant::now();
    assert!(token(&renewable).await.unwrap_err().contains("no token in time"));
    assert_eq!(began.elapsed(), Duration::from_secs(30));
    assert_eq!(token(&renewable).await.unwrap(), "token-4");
    assert_eq!(asked.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn w5_a_token_that_azure_has_refused_is_not_given_out_again() {
    let (renewable, _) = renewable(&[Does::Give(200), Does::Refuse, Does::Refuse, Does::Give(3_600)]);
    assert_eq!(token(&renewable).await.unwrap(), "token-1");
    assert_eq!(token(&renewable).await.unwrap(), "token-1");
    renewable.renew().unwrap();
    assert!(token(&renewable).await.is_err());
    assert_eq!(token(&renewable).await.unwrap(), "token-4");
}

#[tokio::test(start_paused = true)]
async fn c3_a_token_is_given_out_unasked_until_its_last_six_minutes_and_at_need_until_its_last_half_minute() {
    let does = &[Does::Give(600), Does::Refuse, Does::Refuse, Does::Give(3_600)];
    let (renewable, asked) = renewable(does);
    let seconds = Duration::from_secs;
    assert_eq!(token(&renewable).await.unwrap(), "token-1");
    tokio::time::advance(seconds(239)).await;
    assert_eq!(token(&renewable).await.unwrap(), "token-1");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    tokio::time::advance(seconds(1)).await;
    assert_eq!(token(&renewable).await.unwrap(), "token-1");
    assert_eq!(asked.load(Ordering::SeqCst), 2, "it is asked for a new one, in vain");
    tokio::time::advance(seconds(330)).await;
    assert!(token(&renewable).await.is_err(), "30 s before its end");
    assert_eq!(token(&renewable).await.unwrap(), "token-4");
}

#[tokio::test(start_paused = true)]
async fn c3_a_step_of_the_wall_clock_moves_the_end_of_tokens_and_not_the_rest_between_two_refreshes() {
    let ahead = Arc::new(AtomicU32::new(0));
    let (read, asked) = (Arc::clone(&ahead), Arc::new(AtomicU32::new(0)));
    let still = clocks();
    let stepped = Clocks {
        wall: Arc::new(move || {
            Wall::from_micros(WALL.as_micros() + i64::from(read.load(Ordering::SeqCst)) * 1_000_000)
        }),
        ..still.clone()
    };
    let counted = Arc::clone(&asked);
    let make = move || {
        let does = &[Does::Give(3_600), Does::Refuse, Does::Give(7_200)];
        let (clocks, asked) = (still.clone(), Arc::clone(&counted));
        let authority: Arc<dyn TokenCredential> = Arc::new(Authority { clocks, does, asked });
        Ok(authority)
    };
    let renewable = Renewable::made_by(Box::new(make), stepped).unwrap();
    assert_eq!(token(&renewable).await.unwrap(), "token-1");
    ahead.store(3_500, Ordering::SeqCst);
    for _ in 0..3 {
        assert_eq!(token(&renewable).await.unwrap(), "token-1");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    ahead.store(3_520, Ordering::SeqCst);
    assert_eq!(token(&renewable).await.unwrap(), "token-1");
    assert_eq!(asked.load(Ordering::SeqCst), 2, "ten seconds by the wall clock alone have passed");
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(token(&renewable).await.unwrap(), "token-3");
}
