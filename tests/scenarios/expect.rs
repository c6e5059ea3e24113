//! The expectations of a scenario: each line waits until its condition holds, and fails if it can no longer hold.
//! Absence is checked against the timestamps that the fake servers record.

mod nodes;

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};
use simulator::models::arm::Kind;
use simulator::models::kube::Resource;
use simulator::{Azure, duration, members};

pub use nodes::About;

use super::azure::{Entry, Put};
use super::stage::{Probe, Stage};
use super::world::{ServiceName, split_pool};

/// The outcome of a line.
type Done = Result<(), String>;

impl Stage {
    /// Waits until an expectation holds.
    pub async fn expect(&mut self, words: &[&str]) -> Done {
        match words {
            ["PUT", pool, rest @ ..] => self.expect_put(pool, rest).await,
            ["no", "PUT", rest @ ..] => self.expect_no_put(rest).await,
            ["no", "pool", "GET", "for", time] => {
                let end_us = self.mark_us + micros(time)?;
                self.expect_no_call(Kind::PoolGet, end_us).await
            }
            ["polls", least] => self.expect_polls(number(least)?).await,
            ["members", pool, nodes @ ..] => self.expect_members(pool, nodes).await,
            ["overlap", one, other] => self.expect_overlap(one, other),
            ["body", rest @ ..] => self.expect_body(&rest.join(" ")),
            ["no", "body", rest @ ..] => self.expect_no_body(&rest.join(" ")),
            ["unknown", "fields", "in", "body"] => self.expect_unknown_fields(),
            ["down", pool, nodes @ ..] => self.expect_down(pool, nodes).await,
            ["traffic", pool, rest @ ..] => self.expect_traffic(pool, rest).await,
            ["taints", node, taints @ ..] => self.expect_taints(node, taints).await,
            ["records", nodes @ ..] => self.expect_records(nodes).await,
            ["quiet", time] => self.expect_quiet(micros(time)?).await,
            ["no", "ARM", what @ ("write" | "call"), "for", time] => {
                let end_us = self.mark_us + micros(time)?;
                self.expect_no_request(*what == "write", end_us).await
            }
            ["event", reason, rest @ ..] => self.expect_event(reason, rest).await,
            ["no", "event", reason, rest @ ..] => self.expect_no_event(reason, rest).await,
            ["no", "events"] => self.expect_no_events().await,
            ["shared", "lease", "never", "ours"] => self.expect_no_hold().await,
            ["held", service, reason] => self.expect_held(service, reason).await,
            ["gauge", series, value] => self.expect_gauge(series, value).await,
            ["GET", path, pointer, value @ ..] => self.expect_get(path, pointer, &value.join(" ")).await,
            ["log", "ERROR", text @ ..] => {
                self.promises.errors.push(text.join(" "));
                Ok(())
            }
            ["log", level, text @ ..] => self.expect_log(level, &text.join(" ")).await,
            other => Err(format!("unknown expectation {other:?}")),
        }
    }

    /// Asserts that the next unlisted PUT of a pool has exactly these members, exactly these Down entries, and this
    /// answer.
    async fn expect_put(&mut self, pool: &str, words: &[&str]) -> Done {
        let (words, answer) = match words {
            [words @ .., "->", answer] => (words, Some(*answer)),
            words => (words, None),
        };
        let (nodes, downs) = match words.iter().position(|word| *word == "down") {
            Some(at) => (&words[..at], nodes::nodes(&words[at + 1..])?),
            None => (words, Vec::new()),
        };
        let wanted = self.world.members(pool, nodes)?;
        let interfaces = self.interfaces(pool).await;
        let ended_us = self
            .until(|stage| {
                let Some(put) = stage.puts.iter_mut().find(|put| !put.matched && put.is_of(pool)) else {
                    return Probe::NotYet(format!("{} PUTs in all", stage.puts.len()));
                };
                let answered = match answer {
                    None => matches!(put.status, 200 | 201),
                    Some("lost") => put.status == 0,
                    Some(status) => put.status.to_string() == status,
                };
                let is_of = |node: &str, entry: &Entry| {
                    let interface = interfaces.get(&entry.name).map(String::as_str);
                    stage.world.is_of(node, entry.ip, interface)
                };
                let fits = if interfaces.is_empty() {
                    put.members.as_ref() == Some(&wanted)
                } else {
                    nodes::are_of(nodes, &put.entries, is_of)
                };
                let down: Vec<Entry> = put.entries.iter().filter(|entry| entry.down).cloned().collect();
                if !(fits && answered && nodes::are_of(&downs, &down, is_of)) {
                    let is_logged =
                        format!("the next PUT has {:?} and was answered {}", put.members, put.status);
                    return Probe::Wrong(format!("{is_logged}, Down are {down:?}; expected were {wanted:?}"));
                }
                put.matched = true;
                Probe::Found(put.ended_us)
            })
            .await?;
        self.answered_us = ended_us;
        self.mark_us = self.mark_us.max(ended_us);
        Ok(())
    }

    /// Asserts that there is no unlisted PUT before a time: `[POOL] until 2s` on the scenario's clock, `[POOL] for 2s`
    /// from the last change or the answer of the last expected PUT, or `[POOL] for 2s after PUT` from that answer.
    async fn expect_no_put(&mut self, words: &[&str]) -> Done {
        let (pool, end_us) = match words {
            [pool @ .., "until", time] => (pool, self.zero_us + micros(time)?),
            [pool @ .., "for", time, "after", "PUT"] => (pool, self.answered_us + micros(time)?),
            [pool @ .., "for", time] => (pool, self.mark_us + micros(time)?),
            other => return Err(format!("{other:?} has no time")),
        };
        self.wait_until(end_us).await;
        self.take_puts();
        let is_meant = |put: &&Put| pool.first().is_none_or(|wanted| put.is_of(wanted));
        let early = self.puts.iter().find(|put| !put.matched && put.at_us < end_us && is_meant(put));
        match early {
            None => Ok(()),
            Some(put) => {
                let at = (put.at_us.saturating_sub(self.zero_us)) as f64 / 1e6;
                Err(format!("{} was written at {at:.3}s: {:?}", put.pool, put.members))
            }
        }
    }

    async fn expect_no_call(&mut self, kind: Kind, end_us: u64) -> Done {
        self.wait_until(end_us).await;
        let from_us = self.mark_us;
        let log = self.fakes.log().await;
        let call = log.iter().find(|call| call.kind == kind && (from_us..end_us).contains(&call.started_us));
        call.map_or(Ok(()), |call| Err(format!("there was one: {call:?}")))
    }

    async fn expect_polls(&mut self, least: u64) -> Done {
        let mut again = Polling::of(self);
        loop {
            let polls = self.fakes.counters().await.polls;
            if polls >= least {
                return Ok(());
            }
            again.more(&format!("{polls} polls")).await?;
        }
    }

    async fn expect_members(&mut self, pool: &str, nodes: &[&str]) -> Done {
        let wanted = self.world.members(pool, nodes)?;
        let mut again = Polling::of(self);
        loop {
            let actual = self.members(pool).await;
            if actual == wanted {
                return Ok(());
            }
            again.more(&format!("{actual:?}")).await?;
        }
    }

    /// Returns the current members of a pool, on the named load balancer or on the one that has it.
    pub async fn members(&self, pool: &str) -> BTreeSet<IpAddr> {
        let (load_balancer, pool) = split_pool(pool);
        let (load_balancer, pool) = (load_balancer.map(str::to_lowercase), pool.to_owned());
        let query = move |azure: &mut Azure, _| {
            let model = &azure.model;
            let is_meant =
                |lb: &&str| load_balancer.as_ref().is_none_or(|wanted| *wanted == lb.to_lowercase());
            model.load_balancers().filter(is_meant).flat_map(|lb| members(model, lb, &pool)).collect()
        };
        self.fakes.azure.ask(query).await
    }

    /// Asserts that the last expected PUTs of two pools were in flight at the same time.
    fn expect_overlap(&self, one: &str, other: &str) -> Done {
        let last = |pool: &str| {
            let put = self.puts.iter().rev().find(|put| put.matched && put.pool == pool);
            put.map(|put| (put.at_us, put.ended_us)).ok_or_else(|| format!("no PUT of {pool} was expected"))
        };
        let ((began, ended), (other_began, other_ended)) = (last(one)?, last(other)?);
        let together = began < other_ended && other_began < ended;
        if together { Ok(()) } else { Err(format!("{began}..{ended} and {other_began}..{other_ended}")) }
    }

    fn last_body(&self) -> Result<&str, String> {
        let last_matched = self.puts.iter().rev().find(|put| put.matched);
        last_matched.map(|put| put.body.as_str()).ok_or_else(|| "no PUT was expected before".to_owned())
    }

    fn expect_body(&self, text: &str) -> Done {
        let body = self.last_body()?;
        if body.contains(text) { Ok(()) } else { Err(format!("the body is {body}")) }
    }

    fn expect_no_body(&self, text: &str) -> Done {
        let body = self.last_body()?;
        if body.contains(text) { Err(format!("the body is {body}")) } else { Ok(()) }
    }

    /// Asserts that the last expected PUT contains the unchanged fields of `unknown fields`: in the pool, in its
    /// properties, and in each remaining address and its properties.
    fn expect_unknown_fields(&self) -> Done {
        let body: Value = serde_json::from_str(self.last_body()?).map_err(|error| error.to_string())?;
        let entries =
            body["properties"]["loadBalancerBackendAddresses"].as_array().cloned().unwrap_or_default();
        let staying = entries.iter().find(|entry| entry.get("fieldOfTheFuture").is_some());
        let staying = staying.ok_or_else(|| format!("no address has kept its field: {body}"))?;
        let places = [
            (&body, "pool"),
            (&body["properties"], "poolProperties"),
            (staying, "address"),
            (&staying["properties"], "addressProperties"),
        ];
        for (object, level) in places {
            let field = &object["fieldOfTheFuture"];
            let planted = json!({
                "level": level, "largest": u64::MAX, "smallest": i64::MIN, "fraction": 0.1, "nothing": null,
                "text": "quote \" backslash \\ newline \n snowman \u{2603} bell \u{7}",
                "nested": [[], {}, [1, "2", { "three": [true, false, null] }]],
            });
            if *field != planted {
                return Err(format!("the field of {level} has become {field}"));
            }
        }
        Ok(())
    }

    /// Returns the messages of the events of a reason about something.
    pub async fn events(&self, reason: &str, about: &About) -> Vec<String> {
        let (reason, about) = (reason.to_owned(), about.clone());
        let query = move |cluster: &mut simulator::Cluster, _| {
            let events = cluster.model.list(Resource::Events);
            let events = events.filter(|event| event["reason"] == *reason && about.is_of(event));
            events.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
        };
        self.fakes.cluster.ask(query).await
    }

    /// Parses `<service>` or `node <node>`, then optionally a count and a text.
    async fn expect_event(&mut self, reason: &str, words: &[&str]) -> Done {
        let (about, words) = About::parse(words)?;
        let (count, text) = match words {
            [count, text @ ..] if count.strip_prefix('x').is_some_and(|n| n.parse::<usize>().is_ok()) => {
                (count[1..].parse::<usize>().ok(), text.join(" "))
            }
            text => (None, text.join(" ")),
        };
        if let Some(count) = count {
            self.promises.events.push((reason.to_owned(), about.clone(), count));
        }
        let mut again = Polling::of(self);
        loop {
            let actual = self.events(reason, &about).await;
            if actual.iter().filter(|message| message.contains(&text)).count() >= count.unwrap_or(1) {
                return Ok(());
            }
            again.more(&format!("{actual:?}")).await?;
        }
    }

    async fn expect_no_event(&mut self, reason: &str, words: &[&str]) -> Done {
        let (about, []) = About::parse(words)? else {
            return Err(format!("{words:?}: no event is about <service> or node <node>, and nothing more"));
        };
        let actual = self.events(reason, &about).await;
        if actual.is_empty() { Ok(()) } else { Err(format!("there is one: {actual:?}")) }
    }

    async fn expect_no_events(&mut self) -> Done {
        let all = self.fakes.cluster.ask(|cluster, _| cluster.model.list(Resource::Events).next()).await;
        all.map_or(Ok(()), |event| Err(format!("there is one: {event}")))
    }

    /// Asserts that the controller has never held the Lease that it shares with the cloud-controller-manager (W7).
    async fn expect_no_hold(&self) -> Done {
        let ours = |cluster: &mut simulator::Cluster, _| {
            cluster.holds.all().iter().find(|hold| hold.is_ours()).map(|hold| format!("{hold:?}"))
        };
        self.fakes.cluster.ask(ours).await.map_or(Ok(()), |hold| Err(format!("it had it: {hold}")))
    }

    async fn expect_held(&mut self, service: &str, reason: &str) -> Done {
        let key = ServiceName::parse(service);
        let path = format!("/api/v1/services/{}/{}", key.namespace, key.name);
        let mut again = Polling::of(self);
        loop {
            let (_, text) = self.fetch(&path).await?;
            let answer: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
            let pools = answer["pools"].as_array();
            if pools.into_iter().flatten().any(|pool| pool["held"]["reason"] == reason) {
                return Ok(());
            }
            again.more(&text).await?;
        }
    }

    async fn expect_gauge(&mut self, series: &str, value: &str) -> Done {
        let wanted: Option<f64> = match value {
            "any" | "absent" => None,
            number => Some(number.parse().map_err(|_| format!("{number:?} is not a number"))?),
        };
        let mut again = Polling::of(self);
        loop {
            let (_, text) = self.fetch("/metrics").await?;
            let line =
                text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
            let actual = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            let is_right = match (wanted, actual) {
                (Some(wanted), Some(actual)) => (actual - wanted).abs() < 1e-9,
                (Some(_), None) => false,
                (None, actual) => actual.is_some() == (value == "any"),
            };
            if is_right {
                return Ok(());
            }
            again.more(&format!("{actual:?}")).await?;
        }
    }

    async fn expect_get(&mut self, path: &str, pointer: &str, value: &str) -> Done {
        let wanted = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        let mut again = Polling::of(self);
        loop {
            let (_, text) = self.fetch(path).await?;
            let answer: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
            if answer.pointer(pointer) == Some(&wanted) {
                return Ok(());
            }
            again.more(&text).await?;
        }
    }

    async fn expect_log(&mut self, level: &str, text: &str) -> Done {
        let (level, text) = (level.to_owned(), text.to_owned());
        self.until(|stage| {
            let is_logged = |line: &Value| line["level"] == *level && line.to_string().contains(&text);
            if stage.log().iter().any(is_logged) {
                Probe::Found(())
            } else {
                Probe::NotYet("not in the log".to_owned())
            }
        })
        .await
    }
}

/// A polling loop with a time limit.
pub struct Polling {
    again: tokio::time::Interval,
    ends: tokio::time::Instant,
}

impl Polling {
    /// Creates a loop with the scenario's time limit.
    pub fn of(stage: &Stage) -> Self {
        let again = tokio::time::interval(std::time::Duration::from_millis(25));
        Self { again, ends: tokio::time::Instant::now() + stage.timeout }
    }

    /// Waits for the next poll, or returns an error after the time limit.
    pub async fn more(&mut self, actual: &str) -> Done {
        if tokio::time::Instant::now() > self.ends {
            return Err(format!("not in time; seen last: {actual}"));
        }
        self.again.tick().await;
        Ok(())
    }
}

fn micros(text: &str) -> Result<u64, String> {
    let micros = duration(text)?.as_micros();
    u64::try_from(micros).map_err(|_| format!("{text:?} is too long"))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}
