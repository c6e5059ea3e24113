//! The two profiles in which every case of S0 runs (C2).

use std::io::Write as _;
use std::time::Duration;

use model::ids::NetworkId;
use pools::queue;
use writer::LeaseParams;

/// The virtual network of every pool here.
pub const NETWORK: &str =
    "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/vnet";

/// S0's tick, and the default profile's retry interval, in milliseconds.
pub const TICK: u64 = 30_000;

/// What the controller is configured for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// Nothing is configured.
    Default,
    /// `compatibility: upstream`.
    Upstream,
}

impl Profile {
    /// The parameters of a pool with this retry budget.
    pub fn queue(self, max_retries: u32) -> queue::Params {
        let tick = Duration::from_millis(TICK);
        match self {
            Profile::Default => queue::Params {
                quiet_period: Duration::from_millis(500),
                max_delay: Duration::from_secs(2),
                min_interval: Duration::from_secs(5),
                retry_interval: tick,
                max_retries,
                // Without retries the queue itself switches this off (Q8).
                after_failure: Some(Duration::from_secs(60)),
                drift: true,
                compare_after_stale: true,
                contention_backoff: true,
            },
            Profile::Upstream => queue::Params::upstream(tick, max_retries),
        }
    }

    /// The parameters of the writer.
    pub fn writer(self) -> writer::Params {
        let defaults = writer::Params {
            turns: 64,
            if_match: true,
            etag_rounds: 3,
            client_retries: 3,
            writes_per_5_minutes: 500,
            reads_per_5_minutes: 5_000,
            network: Some(NetworkId::new(NETWORK)),
            lease: Some(LeaseParams {
                holder: "azure-backend-pool-controller".into(),
                max_hold: Duration::from_secs(20),
                min_off: Duration::from_secs(5),
                bypass_for_drain: false,
            }),
            shows_only: false,
            rate_limit: None,
            retry_throttled: false,
            gates_delay_grants: true,
            throttling: writer::Throttling::Bounded,
            breaker: true,
            min_interval: Duration::from_secs(5),
        };
        match self {
            Profile::Default => defaults,
            Profile::Upstream => writer::Params {
                etag_rounds: 1,
                retry_throttled: true,
                gates_delay_grants: false,
                throttling: writer::Throttling::Upstream,
                breaker: false,
                min_interval: Duration::from_millis(TICK),
                ..defaults
            },
        }
    }

    /// From a lone change to its attempt, in milliseconds.
    pub fn window(self) -> u64 {
        match self {
            Profile::Default => 500,
            Profile::Upstream => TICK,
        }
    }

    /// The last sentence of a failure that is final: when the pool is compared again (E1).
    pub fn afterwards(self, seconds: u64) -> String {
        match self {
            Profile::Default => format!("Backend pool lb/shop-web is compared again in {seconds} s."),
            Profile::Upstream => NOT_COMPARED.to_owned(),
        }
    }

    /// How often a client tries a throttled call within one attempt (W6).
    pub fn throttled_tries(self) -> u64 {
        match self {
            Profile::Default => 1,
            Profile::Upstream => 4,
        }
    }
}

/// That nothing compares the pool again by itself (E1).
pub const NOT_COMPARED: &str = "Backend pool lb/shop-web is not compared again by itself.";

/// Plays a case in both profiles.
pub fn both(case: impl Fn(Profile)) {
    for profile in [Profile::Default, Profile::Upstream] {
        let _named = Playing(format!("in the profile {profile:?}"));
        case(profile);
    }
}

/// Names what is being played, should it fail.
pub struct Playing(pub String);

impl Drop for Playing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            writeln!(std::io::stderr(), "{}", self.0).expect("stderr takes it");
        }
    }
}
