//! The types of values in controller.yaml: how each is read, checked, described and rendered. There is one
//! implementation of [`Setting`] per Rust type; the types in the key table select them.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value as Schema, json};

use crate::document::{Content, Node, as_boolean};
use crate::duration;
use crate::nearest::resembling;
use crate::problem::{Fault, Mismatch};
use crate::selector::{LabelSelector, is_namespace};
use crate::value::Value;

/// A type that a key of controller.yaml may have.
pub(crate) trait Setting: Sized {
    /// Restriction of the value in addition to its type.
    type Rule;
    /// Error of a refused value: about the value as a whole (`Mismatch`), or about each invalid part.
    type Refusal: Into<Vec<Fault>>;

    /// Reads a value and checks it against the rule.
    fn read(node: &Node, rule: &Self::Rule) -> Result<Self, Self::Refusal>;

    /// Describes the permitted values, for problems and the reference configuration.
    fn expected(rule: &Self::Rule) -> String;

    /// Returns the permitted values as JSON Schema, for the chart's values. It may permit more than `read` does.
    fn schema(rule: &Self::Rule) -> Schema;

    /// Returns the value for the effective configuration.
    fn to_value(&self) -> Value;

    /// Returns whether problems may suggest this default. A default that does more, or guards less, than other values
    /// must be written explicitly.
    fn may_suggest(_default: &str) -> bool {
        true
    }

    /// Parses the text of an environment variable.
    fn from_text(text: &str) -> Result<Node, Mismatch> {
        Ok(Node::plain(text))
    }
}

/// The names of namespaces, as a regular expression.
const NAMESPACE: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// Rule that permits every value of the type.
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

    fn to_value(&self) -> Value {
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

    fn to_value(&self) -> Value {
        Value::Integer((*self).into())
    }
}

/// A fraction from 0 to 1, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fraction(u32);

impl Fraction {
    /// Returns the fraction in millionths, 0 to 1000000.
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

    fn to_value(&self) -> Value {
        Value::Decimal(f64::from(self.0) / 1e6)
    }
}

impl Setting for bool {
    type Rule = AnyValue;
    type Refusal = Mismatch;

    fn read(node: &Node, rule: &Self::Rule) -> Result<Self, Mismatch> {
        node.plain_text()
            .and_then(as_boolean)
            .ok_or_else(|| Mismatch::new(Self::expected(rule), "write true or false, without quotes"))
    }

    fn expected(_rule: &Self::Rule) -> String {
        "true or false".to_owned()
    }

    fn schema(_rule: &Self::Rule) -> Schema {
        json!({ "type": "boolean" })
    }

    fn to_value(&self) -> Value {
        Value::Boolean(*self)
    }
}

impl Setting for String {
    /// Maximum length of the text, in characters.
    type Rule = usize;
    type Refusal = Mismatch;

    fn read(node: &Node, rule: &Self::Rule) -> Result<Self, Mismatch> {
        let is_permitted = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        node.text()
            .filter(|text| {
                !text.is_empty() && text.chars().count() <= *rule && text.chars().all(is_permitted)
            })
            .map(str::to_owned)
            .ok_or_else(|| Mismatch::new(Self::expected(rule), "write the bare name"))
    }

    fn expected(rule: &Self::Rule) -> String {
        format!("a name of 1 to {rule} letters, digits, `-`, `_` and `.`")
    }

    fn schema(rule: &Self::Rule) -> Schema {
        json!({ "type": "string", "pattern": format!("^[A-Za-z0-9_.-]{{1,{rule}}}$") })
    }

    fn to_value(&self) -> Value {
        Value::Text(self.clone())
    }
}

/// A name that is valid for a Kubernetes object and its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName(String);

impl ObjectName {
    /// Returns the name.
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

    fn to_value(&self) -> Value {
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

    fn to_value(&self) -> Value {
        Value::Text(self.to_string())
    }
}

/// The kind of names in a list.
#[derive(Clone, Copy)]
pub(crate) enum Names {
    /// Namespaces; an empty list means all.
    Namespaces,
    /// Backend pools, whose names are case-insensitive; an empty list means none.
    BackendPools,
    /// Addresses and names that a migration may change; an empty list means none.
    Accepted,
}

impl Names {
    fn is_permitted(self, name: &str) -> bool {
        let in_a_pools_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        match self {
            Self::Namespaces => is_namespace(name),
            Self::BackendPools => (1..=80).contains(&name.len()) && name.chars().all(in_a_pools_name),
            Self::Accepted => {
                let is_permitted = |c: char| in_a_pools_name(c) || c == ':';
                (1..=80).contains(&name.len()) && name.chars().all(is_permitted)
            }
        }
    }

    fn same(self, one: &str, other: &str) -> bool {
        match self {
            Self::Namespaces | Self::Accepted => one == other,
            Self::BackendPools => one.eq_ignore_ascii_case(other),
        }
    }

    /// Returns the remedies for a value that is not a list, and for an invalid name.
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
            let name = item.text().filter(|name| rule.is_permitted(name)).ok_or_else(|| Mismatch {
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

    fn to_value(&self) -> Value {
        Value::List(self.clone())
    }

    fn from_text(text: &str) -> Result<Node, Mismatch> {
        let items = text.trim().trim_start_matches('[').trim_end_matches(']');
        let items =
            items.split(',').map(str::trim).filter(|item| !item.is_empty()).map(Node::plain).collect();
        Ok(Node { line: 1, content: Content::List(items) })
    }
}

/// The addresses that a listener may have.
pub(crate) enum Listen {
    /// All addresses.
    Anywhere,
    /// Loopback addresses (H2).
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

    fn to_value(&self) -> Value {
        Value::Text(self.to_string())
    }
}

/// The absolute path of a file. An empty text means none.
impl Setting for Option<PathBuf> {
    type Rule = AnyValue;
    type Refusal = Mismatch;

    fn read(node: &Node, rule: &Self::Rule) -> Result<Self, Mismatch> {
        match node.text().map(Path::new) {
            Some(path) if path.as_os_str().is_empty() => Ok(None),
            Some(path) if path.is_absolute() => Ok(Some(path.to_owned())),
            Some(_) | None => {
                Err(Mismatch::new(Self::expected(rule), "write the absolute path, starting with /"))
            }
        }
    }

    fn expected(_rule: &Self::Rule) -> String {
        "the absolute path of a file, or \"\" for none".to_owned()
    }

    fn schema(_rule: &Self::Rule) -> Schema {
        json!({ "type": "string", "pattern": "^(/.*)?$" })
    }

    fn to_value(&self) -> Value {
        Value::Text(self.as_deref().unwrap_or(Path::new("")).display().to_string())
    }
}

/// Declares an enum whose variants are words in the file. Variants that are `never suggested` do more, or guard less,
/// than the others, so they must be written explicitly.
macro_rules! choice {
    (
        $(#[doc = $about:literal])+
        $name:ident { $( $(#[doc = $doc:literal])+ $variant:ident = $value:literal, )+ }
        $( never suggested: $($dangerous:literal),+ )?
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $( $(#[doc = $doc])+ $variant, )+ }

        impl $name {
            /// Returns the word in the file.
            pub fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $value, )+ }
            }
        }

        impl Setting for $name {
            type Rule = AnyValue;
            type Refusal = Mismatch;

            fn read(node: &Node, rule: &Self::Rule) -> Result<Self, Mismatch> {
                let values = [$($value),+];
                match node.text() {
                    $( Some($value) => Ok(Self::$variant), )+
                    other => {
                        let suggestion = resembling(other.unwrap_or_default(), values);
                        let remedy = match suggestion.filter(|value| Self::may_suggest(value)) {
                            Some(value) => format!("write {value}"),
                            None => "write one of these words".to_owned(),
                        };
                        Err(Mismatch::new(Self::expected(rule), remedy))
                    }
                }
            }

            fn expected(_rule: &Self::Rule) -> String {
                format!("one of {}", [$($value),+].join(", "))
            }

            fn schema(_rule: &Self::Rule) -> Schema {
                json!({ "enum": [$($value),+] })
            }

            fn to_value(&self) -> Value {
                Value::Text(self.as_str().to_owned())
            }

            fn may_suggest(value: &str) -> bool {
                let dangerous: &[&str] = &[$($($dangerous),+)?];
                !dangerous.contains(&value)
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
    /// G5: effect of the guards on removals.
    GuardsMode {
        /// Doubtful removals are held back.
        Enforce = "enforce",
        /// Removals are carried out; those that would be held back are shown, counted and reported.
        Observe = "observe",
        /// Removals are not checked.
        Off = "off",
    }
    never suggested: "observe", "off"
}

choice! {
    /// G6: the actions that the controller may take.
    Mode {
        /// Only reading, and holding our own Lease.
        Observe = "observe",
        /// All actions except removing members.
        AddOnly = "add-only",
        /// All actions.
        Enforce = "enforce",
    }
    never suggested: "enforce"
}

choice! {
    /// C3: the way to sign in to ARM.
    IdentityMode {
        /// The identity of the cloud configuration or the environment, in upstream's order.
        Auto = "auto",
        /// Without signing in; only for a loopback endpoint.
        Anonymous = "anonymous",
        /// The projected service account token, regardless of the cloud configuration.
        WorkloadIdentity = "workloadIdentity",
        /// The machine's managed identity, regardless of the cloud configuration.
        ManagedIdentity = "managedIdentity",
        /// An application with its secret, regardless of the cloud configuration.
        ClientSecret = "clientSecret",
        /// An application with its certificate, regardless of the cloud configuration.
        ClientCertificate = "clientCertificate",
    }
    never suggested: "anonymous"
}

choice! {
    /// C2: the source of default times and precautions.
    Compatibility {
        /// This controller's own.
        Default = "default",
        /// The defaults of S0.
        Upstream = "upstream",
    }
    never suggested: "upstream"
}

choice! {
    /// The IP family of a pool's members.
    IpFamily {
        /// IPv4.
        V4 = "IPv4",
        /// IPv6.
        V6 = "IPv6",
    }
}

choice! {
    /// The format of log lines.
    LogFormat {
        /// One JSON object per line.
        Json = "json",
        /// Text for operators.
        Text = "text",
    }
}

choice! {
    /// The minimum level of log lines.
    LogLevel {
        /// Failures that need action.
        Error = "error",
        /// Problems that an operator should check.
        Warn = "warn",
        /// Events of the controller.
        Info = "info",
        /// Details that explain them.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}
