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

/// Configuration of the controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// Defaults.
    Default,
    /// `compatibility: upstream`.
    Upstream,
}

impl Profile {
    /// Returns the parameters of a pool with this retry budget.
    pub fn queue(self, max_retries: u32) -> queue::Params {
        let tick = Duration::from_millis(TICK);
        match self {
            Profile::Default => queue::Params {
                quiet_period: Duration::from_millis(500),
                max_delay: Duration::from_secs(2),
                min_interval: Duration::from_secs(5),
                retry_interval: tick,
                max_retries,
                // Without retries the queue itself disables this (Q8).
                after_failure: Some(Duration::from_secs(60)),
                drift: true,
                compare_after_stale: true,
                contention_backoff: true,
            },
            Profile::Upstream => queue::Params::upstream(tick, max_retries),
        }
    }

    /// Returns the parameters of the writer.
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
                min_cooldown: Duration::from_secs(5),
                bypass_for_drain: false,
            }),
            dry_run: false,
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

    /// Returns the time from a single change to its attempt, in milliseconds.
    pub fn window(self) -> u64 {
        match self {
            Profile::Default => 500,
            Profile::Upstream => TICK,
        }
    }

    /// Returns the last sentence of a final failure: when the pool is compared again (E1).
    pub fn afterwards(self, seconds: u64) -> String {
        match self {
            Profile::Default => format!("Backend pool lb/shop-web is compared again in {seconds} s."),
            Profile::Upstream => NOT_COMPARED.to_owned(),
        }
    }

    /// Tries of a throttled call within one attempt (W6).
    pub fn throttled_tries(self) -> u64 {
        match self {
            Profile::Default => 1,
            Profile::Upstream => 4,
        }
    }
}

/// Sentence for a pool that is not compared again automatically (E1).
pub const NOT_COMPARED: &str = "Backend pool lb/shop-web is not compared again until an endpoint changes.";

/// Runs a case in both profiles.
pub fn both(case: impl Fn(Profile)) {
    for profile in [Profile::Default, Profile::Upstream] {
        let _named = Playing(format!("in the profile {profile:?}"));
        case(profile);
    }
}

/// Prints the name of the running case if it fails.
pub struct Playing(pub String);

impl Drop for Playing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            writeln!(std::io::stderr(), "{}", self.0).expect("stderr takes it");
        }
    }
}
