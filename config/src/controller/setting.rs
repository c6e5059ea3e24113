//! The kinds of values that controller.yaml knows: how each is read, checked, described and shown. One implementation
//! of [`Setting`] per Rust type; the key table's types select them.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value as Schema, json};

use crate::document::{Content, Node, as_switch};
use crate::duration;
use crate::nearest::resembling;
use crate::problem::{Fault, Mismatch};
use crate::selector::{LabelSelector, is_namespace};
use crate::value::Value;

/// A type that a key of controller.yaml may have.
pub(crate) trait Setting: Sized {
    /// What else than the type bounds the value.
    type Rule;
    /// What a refusal is about: the value as a whole (`Mismatch`), or each of its parts that is wrong.
    type Refusal: Into<Vec<Fault>>;

    /// Reads a value and checks it against the rule.
    fn read(node: &Node, rule: &Self::Rule) -> Result<Self, Self::Refusal>;

    /// What belongs there, for problems and the reference configuration.
    fn expected(rule: &Self::Rule) -> String;

    /// What belongs there as JSON Schema, for the chart's values. It may allow more than `read` does.
    fn schema(rule: &Self::Rule) -> Schema;

    /// The value as it is shown.
    fn show(&self) -> Value;

    /// Whether problems may suggest this default. One that does more, or guards less, than other values has to be written.
    fn may_suggest(_default: &str) -> bool {
        true
    }

    /// The node that an environment variable's text stands for.
    fn from_text(text: &str) -> Result<Node, Mismatch> {
        Ok(Node::plain(text))
    }
}

/// The names of namespaces, as a regular expression.
const NAMESPACE: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// A type without further rule.
pub(crate) struct AnyValue;

impl Setting for Duration {
    type Rule = RangeInclusive<Duration>;
    type Refusal = Mismatch;

    fn read(node: &Node, rule: &Self::Rule) -> Result<Self, Mismatch> {
        let mismatch = |remedy: String| Mismatch::new(Self::expected(rule), remedy);
        let text = node.text().unwrap_or_default();
        if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()) && text.len() < 10 {
            return Err(mismatch(format!("add the unit: {text}s for seconds, {text}ms for milliseconds")));
        }
        let value = duration::parse(text)
            .ok_or_else(|| mismatch("write whole numbers with units, such as 500ms, 2s or 10m".to_owned()))?;
        if rule.contains(&value) {
            Ok(value)
        } else {
            Err(mismatch(format!("write {}", Self::expected(rule))))
        }
    }

    fn expected(rule: &Self::Rule) -> String {
        format!("a duration from {} to {}", duration::render(*rule.start()), duration::render(*rule.end()))
    }

    fn schema(_rule: &Self::Rule) -> Schema {
        json!({ "type": "string", "minLength": 2, "pattern": "^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$" })
    }

    fn show(&self) -> Value {
        Value::Duration(*self)
    }
}

impl Setting for u32 {
    type Rule = RangeInclusive<u32>;
    type Refusal = Mismatch;

    fn read(node: &Node, rule: &Self::Rule) -> Result<Self, Mismatch> {
        node.plain_text()
            .filter(|text| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()))
            .and_then(|text| text.parse().ok())
            .filter(|number| rule.contains(number))
            .ok_or_else(|| {
                Mismatch::new(Self::expected(rule), format!("write {}, without quotes", Self::expected(rule)))
            })
    }

    fn expected(rule: &Self::Rule) -> String {
        format!("a whole number from {} to {}", rule.start(), rule.end())
    }

    fn schema(rule: &Self::Rule) -> Schema {
        json!({ "type": "integer", "minimum": rule.start(), "maximum": rule.end() })
    }

    fn show(&self) -> Value {
        Value::Whole((*self).into())
    }
}

/// A part of a whole, from nothing to all of it, to a millionth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fraction(u32);

impl Fraction {
    /// In millionths of the whole, 0 to 1000000.
    pub fn millionths(self) -> u32 {
        self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 6 || whole.len() > 3 {
            return None;
        }
        let millionths: u32 = format!("{whole}{part:0<6}").parse().ok()?;
        (millionths <= 1_000_000).then_some(Self(millionths))
    }
}

impl Setting for Fraction {
    type Rule = AnyValue;
    type Refusal = Mismatch;

    fn read(node: &Node, rule: &Self::Rule) -> Result<Self, Mismatch> {
        node.plain_text().and_then(Self::parse).ok_or_else(|| {
            let remedy = "write it like 0.5, with at most 6 digits after the point and without quotes";
            Mismatch::new(Self::expected(rule), remedy)
        })
    }

    fn expected(_rule: &Self::Rule) -> String {
        "a number from 0 to 1".to_owned()
    }

    fn schema(_rule: &Self::Rule) -> Schema {
        json!({ "type": "number", "minimum": 0, "maximum": 1 })
    }

    fn show(&self) -> Value {
        Value::Decimal(f64::from(self.0) / 1e6)
    }
}

impl Setting for bool {
    type Rule = AnyValue;
    type Refusal = Mismatch;

    fn read(node: &Node, rule: &Self::Rule) -> Result<Self, Mismatch> {
        node.plain_text()
            .and_then(as_switch)
            .ok_or_else(|| Mismatch::new(Self::expected(rule), "write true or false, without quotes"))
    }

    fn expected(_rule: &Self::Rule) -> String {
        "true or false".to_owned()
    }

    fn schema(_rule: &Self::Rule) -> Schema {
        json!({ "type": "boolean" })
    }

    fn show(&self) -> Value {
        Value::Switch(*self)
    }
}

impl Setting for String {
    /// The longest text, in characters.
    type Rule = usize;
    type Refusal = Mismatch;

    fn read(node: &Node, rule: &Self::Rule) -> Result<Self, Mismatch> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        node.text()
            .filter(|text| !text.is_empty() && text.chars().count() <= *rule && text.chars().all(fits))
            .map(str::to_owned)
            .ok_or_else(|| Mismatch::new(Self::expected(rule), "write the bare name"))
    }

    fn expected(rule: &Self::Rule) -> String {
        format!("a name of 1 to {rule} letters, digits, `-`, `_` and `.`")
    }

    fn schema(rule: &Self::Rule) -> Schema {
        json!({ "type": "string", "pattern": format!("^[A-Za-z0-9_.-]{{1,{rule}}}$") })
    }

    fn show(&self) -> Value {
        Value::Text(self.clone())
    }
}

/// A name that a Kubernetes object and its namespace may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName(String);

impl ObjectName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for ObjectName {
    type Rule = AnyValue;
    type Refusal = Mismatch;

    fn read(node: &Node, rule: &Self::Rule) -> Result<Self, Mismatch> {
        node.text()
            .filter(|name| is_namespace(name))
            .map(|name| Self(name.to_owned()))
            .ok_or_else(|| Mismatch::new(Self::expected(rule), "write the bare name"))
    }

    fn expected(_rule: &Self::Rule) -> String {
        "a name of 1 to 63 lower-case letters, digits and `-`".to_owned()
    }

    fn schema(_rule: &Self::Rule) -> Schema {
        json!({ "type": "string", "pattern": NAMESPACE, "maxLength": 63 })
    }

    fn show(&self) -> Value {
        Value::Text(self.0.clone())
    }
}

impl Setting for LabelSelector {
    type Rule = AnyValue;
    type Refusal = Mismatch;

    fn read(node: &Node, rule: &Self::Rule) -> Result<Self, Mismatch> {
        let example = "write it like app=web,tier!=cache,zone in (a,b), or \"\" for all";
        let text = node.text().ok_or_else(|| Mismatch::new(Self::expected(rule), example))?;
        Self::parse(text)
            .map_err(|wrong| Mismatch::new(Self::expected(rule), format!("correct {wrong}; {example}")))
    }

    fn expected(_rule: &Self::Rule) -> String {
        "a label selector".to_owned()
    }

    fn schema(_rule: &Self::Rule) -> Schema {
        json!({ "type": "string" })
    }

    fn show(&self) -> Value {
        Value::Text(self.to_string())
    }
}

/// What the names of a list are of.
#[derive(Clone, Copy)]
pub(crate) enum Names {
    /// Namespaces; an empty list is for all.
    Namespaces,
    /// Backend pools, whose names are case-insensitive; an empty list is for none.
    BackendPools,
    /// What a migration may change: addresses and names; an empty list is for nothing.
    Accepted,
}

impl Names {
    fn fits(self, name: &str) -> bool {
        let in_a_pools_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        match self {
            Self::Namespaces => is_namespace(name),
            Self::BackendPools => (1..=80).contains(&name.len()) && name.chars().all(in_a_pools_name),
            Self::Accepted => {
                let fits = |c: char| in_a_pools_name(c) || c == ':';
                (1..=80).contains(&name.len()) && name.chars().all(fits)
            }
        }
    }

    fn same(self, one: &str, other: &str) -> bool {
        match self {
            Self::Namespaces | Self::Accepted => one == other,
            Self::BackendPools => one.eq_ignore_ascii_case(other),
        }
    }

    /// What helps where there is no list, and where a name is none.
    fn remedies(self) -> [&'static str; 2] {
        match self {
            Self::Namespaces => [
                "write a list such as [default, web], or [] for all",
                "write namespaces by name: lower-case letters, digits and `-`",
            ],
            Self::BackendPools => [
                "write a list such as [aksOutboundBackendPool], or [] for none",
                "write backend pools by name, without their load balancer: letters, digits, `-`, `_` and `.`",
            ],
            Self::Accepted => [
                "write a list such as [no-outbound], or [] for nothing",
                "write the names that `migrate-basic-lb plan` gives for --accept",
            ],
        }
    }
}

/// Names in the order of the file, each once.
impl Setting for Vec<String> {
    type Rule = Names;
    type Refusal = Mismatch;

    fn read(node: &Node, rule: &Self::Rule) -> Result<Self, Mismatch> {
        let mismatch = |remedy: &str| Mismatch::new(Self::expected(rule), remedy);
        let [no_list, no_name] = rule.remedies();
        let Content::List(items) = &node.content else { return Err(mismatch(no_list)) };
        let mut names: Vec<String> = Vec::new();
        for item in items {
            let name = item.text().filter(|name| rule.fits(name)).ok_or_else(|| Mismatch {
                found: Some(format!("{} in the list", item.describe())),
                ..mismatch(no_name)
            })?;
            if !names.iter().any(|known| rule.same(known, name)) {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn expected(rule: &Self::Rule) -> String {
        match rule {
            Names::Namespaces => "a list of namespaces".to_owned(),
            Names::BackendPools => "a list of backend pools".to_owned(),
            Names::Accepted => "a list of addresses and names".to_owned(),
        }
    }

    fn schema(rule: &Self::Rule) -> Schema {
        let pattern = match rule {
            Names::Namespaces => NAMESPACE,
            Names::BackendPools => "^[A-Za-z0-9_.-]{1,80}$",
            Names::Accepted => "^[A-Za-z0-9_.:-]{1,80}$",
        };
        json!({ "type": "array", "items": { "type": "string", "pattern": pattern } })
    }

    fn show(&self) -> Value {
        Value::List(self.clone())
    }

    fn from_text(text: &str) -> Result<Node, Mismatch> {
        let items = text.trim().trim_start_matches('[').trim_end_matches(']');
        let items =
            items.split(',').map(str::trim).filter(|item| !item.is_empty()).map(Node::plain).collect();
        Ok(Node { line: 1, content: Content::List(items) })
    }
}

/// Which addresses a listener may have.
pub(crate) enum Listen {
    /// Any.
    Anywhere,
    /// This machine only (H2).
    Loopback,
}

impl Setting for SocketAddr {
    type Rule = Listen;
    type Refusal = Mismatch;

    fn read(node: &Node, rule: &Self::Rule) -> Result<Self, Mismatch> {
        let address: Self = node.text().and_then(|text| text.parse().ok()).ok_or_else(|| {
            Mismatch::new(Self::expected(rule), "write IP and port, such as 127.0.0.1:8081 or \"[::1]:8081\"")
        })?;
        match rule {
            Listen::Loopback if !address.ip().is_loopback() => {
                let remedy = format!(
                    "write 127.0.0.1:{}; reading is open to every client that reaches it",
                    address.port()
                );
                Err(Mismatch::new(Self::expected(rule), remedy))
            }
            Listen::Loopback | Listen::Anywhere => Ok(address),
        }
    }

    fn expected(rule: &Self::Rule) -> String {
        match rule {
            Listen::Anywhere => "an IP address with a port".to_owned(),
            Listen::Loopback => "a loopback IP address with a port".to_owned(),
        }
    }

    fn schema(rule: &Self::Rule) -> Schema {
        let pattern = match rule {
            Listen::Anywhere => "^([0-9.]+|\\[[0-9A-Fa-f:.]+\\]):[0-9]{1,5}$",
            Listen::Loopback => "^(127\\.[0-9.]+|\\[::1\\]):[0-9]{1,5}$",
        };
        json!({ "type": "string", "pattern": pattern })
    }

    fn show(&self) -> Value {
        Value::Text(self.to_string())
    }
}

/// A file, or none.
impl Setting for Option<PathBuf> {
    type Rule = AnyValue;
    type Refusal = Mismatch;

    fn read(node: &Node, rule: &Self::Rule) -> Result<Self, Mismatch> {
        match node.text().map(Path::new) {
            Some(path) if path.as_os_str().is_empty() => Ok(None),
            Some(path) if path.is_absolute() => Ok(Some(path.to_owned())),
            Some(_) | None => Err(Mismatch::new(Self::expected(rule), "write the whole path, from / on")),
        }
    }

    fn expected(_rule: &Self::Rule) -> String {
        "the absolute path of a file, or \"\" for none".to_owned()
    }

    fn schema(_rule: &Self::Rule) -> Schema {
        json!({ "type": "string", "pattern": "^(/.*)?$" })
    }

    fn show(&self) -> Value {
        Value::Text(self.as_deref().unwrap_or(Path::new("")).display().to_string())
    }
}

/// Declares an enum whose variants are words in the file. What is `never suggested` does more, or guards less, than the
/// others: if it is meant, it has to be written.
macro_rules! choice {
    (
        $(#[doc = $about:literal])+
        $name:ident { $( $(#[doc = $doc:literal])+ $variant:ident = $word:literal, )+ }
        $( never suggested: $($dangerous:literal),+ )?
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $( $(#[doc = $doc])+ $variant, )+ }

        impl $name {
            /// The word that the file has for it.
            pub fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $word, )+ }
            }
        }

        impl Setting for $name {
            type Rule = AnyValue;
            type Refusal = Mismatch;

            fn read(node: &Node, rule: &Self::Rule) -> Result<Self, Mismatch> {
                let words = [$($word),+];
                match node.text() {
                    $( Some($word) => Ok(Self::$variant), )+
                    other => {
                        let meant = resembling(other.unwrap_or_default(), words);
                        let remedy = match meant.filter(|word| Self::may_suggest(word)) {
                            Some(word) => format!("write {word}"),
                            None => "write one of these words".to_owned(),
                        };
                        Err(Mismatch::new(Self::expected(rule), remedy))
                    }
                }
            }

            fn expected(_rule: &Self::Rule) -> String {
                format!("one of {}", [$($word),+].join(", "))
            }

            fn schema(_rule: &Self::Rule) -> Schema {
                json!({ "enum": [$($word),+] })
            }

            fn show(&self) -> Value {
                Value::Text(self.as_str().to_owned())
            }

            fn may_suggest(word: &str) -> bool {
                let dangerous: &[&str] = &[$($($dangerous),+)?];
                !dangerous.contains(&word)
            }
        }
    };
}

choice! {
    /// D4: which endpoints make their node a required member.
    MembersAdd {
        /// Every endpoint that is not terminating.
        Hosted = "hosted",
        /// Endpoints with the condition `serving`.
        Serving = "serving",
        /// Endpoints with the condition `ready`.
        Ready = "ready",
    }
}

choice! {
    /// G5: what becomes of a removal that a guard objects to.
    GuardsMode {
        /// It is held back.
        Enforce = "enforce",
        /// It goes, and that it would be held back is shown, counted and told.
        Observe = "observe",
        /// It is not judged.
        Off = "off",
    }
    never suggested: "observe", "off"
}

choice! {
    /// G6: how much the service may do.
    Mode {
        /// Nothing but look, and hold our own Lease.
        Observe = "observe",
        /// Everything but removing members.
        AddOnly = "add-only",
        /// Everything.
        Enforce = "enforce",
    }
    never suggested: "enforce"
}

choice! {
    /// C3: how to sign in at ARM.
    IdentityMode {
        /// As the cloud configuration and the environment say, in upstream's order.
        Auto = "auto",
        /// Not at all; only to a loopback endpoint.
        Anonymous = "anonymous",
        /// With the projected service account token, whatever the cloud configuration says.
        WorkloadIdentity = "workloadIdentity",
        /// As the machine's managed identity, whatever the cloud configuration says.
        ManagedIdentity = "managedIdentity",
        /// As an application with its secret, whatever the cloud configuration says.
        ClientSecret = "clientSecret",
        /// As an application with its certificate, whatever the cloud configuration says.
        ClientCertificate = "clientCertificate",
    }
    never suggested: "anonymous"
}

choice! {
    /// C2: whose times and precautions are kept.
    Compatibility {
        /// This product's own.
        Default = "default",
        /// S0's letter.
        Upstream = "upstream",
    }
    never suggested: "upstream"
}

choice! {
    /// Of which family a pool's members are.
    IpFamily {
        /// IPv4.
        V4 = "IPv4",
        /// IPv6.
        V6 = "IPv6",
    }
}

choice! {
    /// How log lines are written.
    LogFormat {
        /// One JSON object per line.
        Json = "json",
        /// For operators.
        Text = "text",
    }
}

choice! {
    /// The least important log lines that are written.
    LogLevel {
        /// What someone must act on.
        Error = "error",
        /// What the operator should look at in the morning.
        Warn = "warn",
        /// What happened.
        Info = "info",
        /// Why it happened.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}
