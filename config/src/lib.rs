//! Reads and validates the configuration (C1-C4): the cloud-controller-manager's cloud configuration and the
//! controller's own controller.yaml, with environment overrides. All problems are reported together, each with its
//! remedy. Secrets appear in no problem, no `Debug` output and no effective configuration. The only IO is [`read`].
//! Machines never see [`Config`]; the wiring maps it to their parameters.

mod cloud;
mod controller;
mod document;
mod duration;
mod identity;
mod load;
mod nearest;
mod problem;
mod selector;
mod source;
mod value;

pub use cloud::{
    BalancerConfiguration, Cloud, CloudConfig, CloudConfigType, DEFAULT_CLIENT_RETRIES, DEFAULT_MAX_RETRIES,
    DEFAULT_UPDATE_INTERVAL, LoadBalancerSku, Login, MIN_READS_PER_SECOND, PoolMembers, RateLimit,
    is_loopback, is_secret_used,
};
pub use controller::{
    AdminState, ApiVersion, Batching, Budget, Client, Compatibility, ControllerConfig, DefaultValue,
    Discovery, Fraction, Guards, GuardsMode, Http, HttpTls, IdentityMode, IpFamily, KEYS, Key,
    LeaderElection, Lease, ListedPool, Log, LogFormat, LogLevel, Members, MembersAdd, Migration, Mode,
    ObjectName, Resync, SECTIONS, Section, Services, SourcesKubernetes, Writer, Xds, environment_name,
    reference, schema,
};
pub use duration::{InvalidDuration, parse_duration, render as render_duration};
pub use identity::{Identity, ManagedIdentity};
pub use load::{Config, Loaded};
pub use problem::{Location, Problem, Report, WHOLE_FILE, Warning};
pub use secrecy::{ExposeSecret, SecretString};
pub use selector::{LabelSelector, Requirement};
pub use source::{CloudSource, MAX_FILE_BYTES, Source, read};
pub use value::{EffectiveValue, Origin, REDACTED, Value};
