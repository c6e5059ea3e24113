//! The format of pauses and of the admin state's switch in our ConfigMap, and how a pause is written there
//! (docs/design/pools.md, G6; D1, N4).
//!
//! ConfigMap keys cannot hold every name, so the first line of the value names the target. Unreadable keys are
//! reported. An unreadable key that looks like a pause of everything is treated as one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::config_map::{ConfigMapEdit, ConfigMapFacts, Text, Value};
use model::ids::{LbName, PoolId, PoolName, ServiceKey};
use model::machine::Now;
use model::operator_request::Scope;
use model::policy::Pause;

/// The key of the pause of everything.
const EVERYTHING: &str = "pause.everything";
/// Prefix of the keys of the pauses of pools.
const POOL: &str = "pause.pool.";
/// Prefix of the keys of the pauses of Services.
const SERVICE: &str = "pause.service.";
/// Prefix of the keys of all pauses.
const ANY: &str = "pause.";
/// Maximum number of characters of names in a key, which has at most 253.
const MAX_NAMES: usize = 200;
/// Maximum number of characters of a stored reason.
const MAX_REASON: usize = 500;
/// Maximum number of characters of a stored user name.
const MAX_NAME: usize = 200;

/// The pauses in a state of the ConfigMap.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct PauseNotes {
    /// The pause of everything.
    pub everything: Option<Pause>,
    /// The pauses of pools.
    pub pools: BTreeMap<PoolId, Pause>,
    /// The pauses of Services.
    pub services: BTreeMap<ServiceKey, Pause>,
    /// Whether the admin state is switched off.
    pub admin_state_off: bool,
    /// The keys that name each target.
    keys: BTreeMap<Scope, BTreeSet<Arc<str>>>,
    /// The unreadable keys, with the reason.
    pub unreadable: BTreeMap<Arc<str>, &'static str>,
}

impl PauseNotes {
    /// Reads the pauses in a state.
    pub(super) fn of(facts: &ConfigMapFacts) -> PauseNotes {
        let mut noted = PauseNotes { admin_state_off: facts.admin_state_is_off(), ..PauseNotes::default() };
        let texts = facts.data.iter().map(|(key, text)| (key, Some(text)));
        for (key, text) in texts.chain(facts.binary.iter().map(|key| (key, None))) {
            match read(key, text) {
                None => {}
                Some(Err(why)) => {
                    noted.unreadable.insert(Arc::clone(key), why);
                }
                Some(Ok((scope, pause, trouble))) => {
                    noted.keys.entry(scope.clone()).or_default().insert(Arc::clone(key));
                    if let Some(why) = trouble {
                        noted.unreadable.insert(Arc::clone(key), why);
                    }
                    match scope {
                        Scope::Everything => noted.everything = Some(pause),
                        Scope::Pool(pool) => drop(noted.pools.insert(pool, pause)),
                        Scope::Service(service) => drop(noted.services.insert(service, pause)),
                        Scope::Node(_) => {}
                    }
                }
            }
        }
        noted
    }

    /// Returns whether this scope has a pause of its own.
    pub(super) fn has(&self, scope: &Scope) -> bool {
        self.keys.contains_key(scope)
    }

    /// Returns the edit that ends the pause.
    pub(super) fn resuming(&self, scope: &Scope) -> ConfigMapEdit {
        let remove = self.keys.get(scope).cloned().unwrap_or_default();
        ConfigMapEdit { remove, ..ConfigMapEdit::default() }
    }

    /// Returns the edit that sets the pause, in the existing key of the target or in a free one.
    pub(super) fn pausing(
        &self,
        facts: Option<&ConfigMapFacts>,
        scope: &Scope,
        at: Now,
        by: Option<&str>,
        reason: Option<&str>,
    ) -> ConfigMapEdit {
        let taken =
            |key: &str| facts.is_some_and(|facts| facts.data.contains_key(key) || facts.binary.contains(key));
        let known = self.keys.get(scope).and_then(BTreeSet::first).cloned();
        let key = known.unwrap_or_else(|| {
            let plain = key_of(scope);
            let numbered = (2_u64..).map(|number| Arc::from(format!("{plain}-{number}")));
            let mut all = std::iter::once(Arc::clone(&plain)).chain(numbered);
            all.find(|key| !taken(key)).unwrap_or(plain)
        });
        let head = match scope {
            Scope::Everything => "everything".to_owned(),
            Scope::Pool(pool) => pool.to_string(),
            Scope::Service(service) => service.to_string(),
            Scope::Node(node) => node.to_string(),
        };
        let mut tail = String::new();
        for (name, said, most) in [("by", by, MAX_NAME), ("reason", reason, MAX_REASON)] {
            if let Some(said) = said.map(|said| one_line(said, most)).filter(|said| !said.is_empty()) {
                tail.push_str(&format!("{name}: {said}\n"));
            }
        }
        let value = Value::Since { head: head.into(), at, tail: tail.into() };
        ConfigMapEdit { set: [(key, value)].into(), ..ConfigMapEdit::default() }
    }
}

/// Returns the preferred key of a pause. It has only letters, digits, `-`, `_` and `.`.
fn key_of(scope: &Scope) -> Arc<str> {
    let plain = |names: String| -> String {
        let letters = names.chars().take(MAX_NAMES);
        letters.map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c } else { '-' }).collect()
    };
    match scope {
        Scope::Everything => EVERYTHING.into(),
        Scope::Pool(PoolId { lb, pool }) => {
            format!("{POOL}{}", plain(format!("{}.{}", lb.folded(), pool.folded()))).into()
        }
        Scope::Service(ServiceKey { namespace, name }) => {
            format!("{SERVICE}{}", plain(format!("{namespace}.{name}"))).into()
        }
        Scope::Node(node) => format!("{ANY}node.{}", plain(node.to_string())).into(),
    }
}

fn one_line(text: &str, most: usize) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(most).collect();
    plain.trim().to_owned()
}

/// A pause, with the warning about its key if it is valid despite an error.
type ReadPause = (Scope, Pause, Option<&'static str>);

/// Reads a key; returns `None` if it is not a pause.
fn read(key: &str, text: Option<&Text>) -> Option<Result<ReadPause, &'static str>> {
    let folded = key.to_ascii_lowercase();
    if !folded.starts_with(ANY) {
        return None;
    }
    if folded == EVERYTHING {
        let Some(text) = text else {
            let why = "its value is not text; it pauses everything";
            return Some(Ok((Scope::Everything, Pause::default(), Some(why))));
        };
        let lines = lines_of(text).skip_while(|line| line.eq_ignore_ascii_case("everything"));
        return Some(Ok((Scope::Everything, pause(text, lines), None)));
    }
    let is_pool = folded.starts_with(POOL);
    if !is_pool && !folded.starts_with(SERVICE) {
        return Some(Err("unknown kind of pause"));
    }
    let Some(text) = text else { return Some(Err("its value is not text")) };
    let mut lines = lines_of(text);
    let halves = lines.next().and_then(|line| line.split_once('/'));
    let whole = |half: &str| !half.is_empty() && !half.contains('/') && !half.contains(char::is_whitespace);
    let Some((first, second)) = halves.filter(|(first, second)| whole(first) && whole(second)) else {
        return Some(Err(if is_pool {
            "the first line of its value is not <load balancer>/<backend pool>"
        } else {
            "the first line of its value is not <namespace>/<name>"
        }));
    };
    let scope = if is_pool {
        Scope::Pool(PoolId::new(LbName::new(first), PoolName::new(second)))
    } else {
        Scope::Service(ServiceKey::new(first, second))
    };
    Some(Ok((scope, pause(text, lines), None)))
}

fn lines_of(text: &Text) -> impl Iterator<Item = &str> {
    text.text.lines().map(str::trim).filter(|line| !line.is_empty())
}

/// Reads who made a pause, when and why. Any other line is part of the reason.
fn pause<'a>(text: &Text, lines: impl Iterator<Item = &'a str>) -> Pause {
    let (mut by, mut reason) = (None, Vec::new());
    for line in lines {
        if let Some(said) = line.strip_prefix("by:") {
            by = Some(Arc::from(one_line(said, MAX_NAME)));
        } else if let Some(said) = line.strip_prefix("reason:") {
            reason.push(said.trim());
        } else if !line.starts_with("since:") {
            reason.push(line);
        }
    }
    let reason = one_line(&reason.join(" "), MAX_REASON);
    Pause { since: text.time, by, reason: (!reason.is_empty()).then(|| reason.into()) }
}
