//! The end of every scenario: each pool and each admin state is in sync, no work is pending, every write was expected,
//! no two writes of one load balancer overlapped, and the controller exits with 0 and without unexpected errors in its
//! log.

use serde_json::Value;
use simulator::{States, expected_pools, wrong_pools};

use super::expect::Polling;
use super::stage::Stage;

/// The outcome of a check.
type Done = Result<(), String>;

impl Stage {
    /// Records a `finally` line: the members of a pool at the end (`POOL node-1 node-2`, `POOL no-members`, or `any
    /// POOL`), pending work, unchecked admin states, or unlisted refused PUTs.
    pub fn expect_at_end(&mut self, words: &[&str]) -> Done {
        let (pool, members) = match words {
            ["pending", "work"] => {
                self.promises.waits = true;
                return Ok(());
            }
            ["any", "admin", "states"] => {
                self.promises.any_states = true;
                return Ok(());
            }
            ["refused", "PUTs", pool, "->", status] => {
                let status = status.parse().map_err(|_| format!("{status:?} is no status"))?;
                self.promises.refused.push(((*pool).to_owned(), status));
                return Ok(());
            }
            ["any", pool] => (pool, None),
            [pool, members @ ..] if !members.is_empty() => {
                (pool, Some(members.iter().map(ToString::to_string).collect()))
            }
            other => return Err(format!("{other:?} has no members of a pool")),
        };
        self.promises.pools.insert(pool.to_lowercase(), members);
        Ok(())
    }

    /// Checks the end.
    pub async fn end(&mut self) -> Done {
        self.pools_are_in_sync().await?;
        self.nothing_waits().await?;
        self.all_puts_are_matched()?;
        let counters = self.fakes.counters().await;
        if counters.max_concurrent_puts > 1 || counters.refused_by_lock > 0 || counters.superseded > 0 {
            return Err(format!("writes of one load balancer overlapped: {counters:?}"));
        }
        for (reason, about, count) in std::mem::take(&mut self.promises.events) {
            let actual = self.events(&reason, &about).await;
            if actual.len() != count {
                return Err(format!(
                    "{about:?} has {} events {reason}, not {count}: {actual:?}",
                    actual.len()
                ));
            }
        }
        let status = self.stop().await?;
        if status.code() != Some(0) {
            return Err(format!("the controller ended with {status}"));
        }
        self.all_puts_are_matched()?;
        self.log_is_clean()
    }

    async fn pools_are_in_sync(&mut self) -> Done {
        let mut again = Polling::of(self);
        loop {
            let wrong = self.wrong().await?;
            if wrong.is_empty() {
                return Ok(());
            }
            again
                .more(&wrong.join("; "))
                .await
                .map_err(|error| format!("pools are out of sync at the end: {error}"))?;
        }
    }

    /// Waits until the controller has no pending work, or has some if the scenario expects it.
    async fn nothing_waits(&mut self) -> Done {
        let mut again = Polling::of(self);
        loop {
            let (_, text) = self.fetch("/api/v1/status").await?;
            let status: Value = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
            let idle = |lane: &Value| {
                lane["writing"].is_null() && lane["waiting"].as_array().is_none_or(Vec::is_empty)
            };
            let lanes = status["lanes"].as_array().is_none_or(|lanes| lanes.iter().all(idle));
            let waits = !status["oldestWaitingChangeSeconds"].is_null() || !lanes;
            if waits == self.promises.waits {
                return Ok(());
            }
            let actual = if waits { "there is pending work" } else { "there is no pending work" };
            again.more(&format!("{actual}: {text}")).await.map_err(|error| format!("at the end {error}"))?;
        }
    }

    async fn wrong(&self) -> Result<Vec<String>, String> {
        let mut wanted = self.fakes.cluster.ask(|cluster, _| expected_pools(&cluster.model)).await;
        wanted.retain(|pool, _| !self.promises.pools.contains_key(pool));
        let pools = self.fakes.azure.ask(move |azure, _| wrong_pools(&azure.model, &wanted)).await;
        let mut wrong: Vec<String> = pools.iter().map(|pool| format!("{pool:?}")).collect();
        if !self.promises.any_states {
            let states = self.fakes.cluster.ask(|cluster, _| States::of(&cluster.model)).await;
            let entries = self.fakes.azure.ask(move |azure, _| azure.wrong_entries(&states)).await;
            wrong.extend(entries.iter().map(|entry| format!("{entry:?}")));
        }
        for (pool, members) in &self.promises.pools {
            let Some(members) = members else { continue };
            let names: Vec<&str> = members.iter().map(String::as_str).collect();
            let (wanted, actual) = (self.world.members(pool, &names)?, self.members(pool).await);
            if wanted != actual {
                wrong.push(format!("{pool} holds {actual:?}, not {wanted:?}"));
            }
        }
        Ok(wrong)
    }

    fn all_puts_are_matched(&mut self) -> Done {
        self.take_puts();
        match self.puts.iter().find(|put| !put.matched) {
            None => Ok(()),
            Some(put) => Err(format!("a PUT that no `expect` lists: {} {:?}", put.pool, put.members)),
        }
    }

    fn log_is_clean(&self) -> Done {
        let log = self.log();
        let bad = |line: &&Value| line["level"] == "ERROR" || !line.is_object();
        let errors: Vec<String> = log.iter().filter(bad).map(ToString::to_string).collect();
        let expected = &self.promises.errors;
        let unexpected = errors.iter().find(|error| !expected.iter().any(|text| error.contains(text)));
        let absent = expected.iter().find(|text| !errors.iter().any(|error| error.contains(*text)));
        match (unexpected, absent) {
            (None, None) => Ok(()),
            (Some(error), _) => Err(format!("an error in the log: {error}")),
            (None, Some(text)) => Err(format!("the log lacks the expected error {text:?}")),
        }
    }
}
