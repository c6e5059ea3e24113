//! Loads both files and the environment, checks them against each other (C3), and builds the effective configuration.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::cloud::{CloudConfig, DEFAULT_UPDATE_INTERVAL, Login};
use crate::controller::{self, ControllerConfig, Deviation, MAX_RETRY_INTERVAL, Mode, Reader};
use crate::document;
use crate::duration;
use crate::identity::{self, Decision, Identity};
use crate::problem::{Location, Problem, Report, Warning};
use crate::source::{CloudSource, Source};
use crate::value::{EffectiveValue, Origin, ToValue, render_section};

/// A valid configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cloud configuration.
    pub cloud: CloudConfig,
    /// The settings of controller.yaml.
    pub controller: ControllerConfig,
    /// The way to sign in to ARM.
    pub identity: Identity,
    /// The source of tokens, including `AZURE_AUTHORITY_HOST`.
    pub login: Login,
    effective: Effective,
}

/// A valid configuration with its warnings.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Values that are valid, but probably mistakes.
    pub warnings: Vec<Warning>,
}

#[derive(Clone, Debug)]
struct Effective {
    cloud_source: String,
    controller_source: String,
    cloud: Vec<EffectiveValue>,
    controller: Vec<EffectiveValue>,
    identity: Vec<EffectiveValue>,
}

impl Config {
    /// Reads both files with the environment's overrides. Reports the problems of both files together. Checks that need
    /// both files run only if both are valid.
    pub fn load(
        cloud: impl Into<CloudSource>,
        controller: Source,
        env: &BTreeMap<String, String>,
    ) -> Result<Loaded, Report> {
        let cloud = cloud.into();
        let (cloud_config, mut warnings, mut problems) = match CloudConfig::read(&cloud) {
            Ok((config, warnings)) => (Some(config), warnings, Vec::new()),
            Err(problems) => (None, Vec::new(), problems),
        };
        let root = document::parse(controller.name(), controller.content().unwrap_or_default());
        let root = root.unwrap_or_else(|problem| {
            problems.push(*problem);
            None
        });
        let tick = cloud_config.as_ref().map_or(DEFAULT_UPDATE_INTERVAL, CloudConfig::update_interval);
        let mut reader = Reader::new(controller.name(), root.as_ref(), env, tick);
        let mut settings = ControllerConfig::read(&mut reader);
        let deviations = controller::apply_upstream_profile(&mut settings, &mut reader.effective, tick);
        warnings.extend(reader.misspelt_variables());
        problems.append(&mut reader.problems);
        let mut checks = Checks { file: controller.name(), values: reader.effective, problems, warnings };
        checks.check_settings(&settings);
        checks.report_deviations(&deviations);
        let decision =
            cloud_config.as_ref().map(|config| checks.identity(&settings, config, cloud.name(), env));
        if let Some(cloud) = &cloud_config {
            checks.check_both_files(&settings, cloud);
        }
        let Checks { values, mut problems, warnings, .. } = checks;
        if let Some(cloud) = cloud_config.as_ref().filter(|_| !problems.is_empty()) {
            // A missing key may be present in another spelling.
            problems.extend_from_slice(cloud.misspelt());
        }
        match (Report::of(problems), cloud_config, decision) {
            (Some(report), _, _) => Err(report),
            (None, Some(cloud_config), Some(decision)) => {
                let effective = Effective {
                    cloud_source: cloud.names(),
                    controller_source: controller.name().to_owned(),
                    cloud: cloud_config.effective(),
                    controller: values,
                    identity: decision.effective,
                };
                let Decision { identity, login, .. } = decision;
                let config = Self { cloud: cloud_config, controller: settings, identity, login, effective };
                Ok(Loaded { config, warnings })
            }
            (None, None, _) | (None, Some(_), None) => {
                unreachable!("a cloud configuration that is not there has problems")
            }
        }
    }

    /// Returns every load balancer that may hold pools of this cluster, each also with `-internal`.
    pub fn managed_load_balancers(&self) -> Vec<String> {
        self.cloud.managed_load_balancers(&self.controller.cluster_name)
    }

    /// Returns the values in force of both files and of the identity as YAML, secrets redacted; each line has the
    /// origin of its value.
    pub fn effective(&self) -> String {
        let Effective { cloud_source, controller_source, cloud, controller, identity } = &self.effective;
        let title = |text: &str| text.replace(char::is_control, " ");
        format!(
            "# {}\n{}\n# {}\n{}\n# from both and the environment\n{}",
            title(cloud_source),
            render_section("cloudConfig", cloud),
            title(controller_source),
            render_section("controllerConfig", controller),
            render_section("identity", identity),
        )
    }

    /// Returns the values of the cloud configuration that are in force.
    pub fn effective_cloud(&self) -> &[EffectiveValue] {
        &self.effective.cloud
    }

    /// Returns the values of controller.yaml that are in force.
    pub fn effective_controller(&self) -> &[EffectiveValue] {
        &self.effective.controller
    }

    /// Returns the values that signing in uses.
    pub fn effective_identity(&self) -> &[EffectiveValue] {
        &self.effective.identity
    }
}

struct Checks<'a> {
    file: &'a str,
    values: Vec<EffectiveValue>,
    problems: Vec<Problem>,
    warnings: Vec<Warning>,
}

impl Checks<'_> {
    /// Checks combinations of keys of controller.yaml.
    fn check_settings(&mut self, settings: &ControllerConfig) {
        let batching = &settings.batching;
        if batching.quiet_period > batching.max_delay {
            let longest = duration::render(batching.max_delay);
            self.problems.push(Problem {
                location: self.location("batching.quietPeriod"),
                field: "batching.quietPeriod".to_owned(),
                found: duration::render(batching.quiet_period),
                expected: format!("at most batching.maxDelay, which is {longest}"),
                remedy: "shorten quietPeriod or lengthen maxDelay".to_owned(),
            });
        }
        let (own, shared) = (&settings.leader_election, &settings.lease);
        if (&own.namespace, &own.name) == (&shared.namespace, &shared.name) {
            self.problems.push(Problem {
                location: self.location("leaderElection.name"),
                field: "leaderElection.name".to_owned(),
                found: format!("{}/{}", own.namespace.as_str(), own.name.as_str()),
                expected: "another Lease than that of lease.namespace and lease.name".to_owned(),
                remedy: "remove both names, or give the replicas a Lease of their own".to_owned(),
            });
        }
        self.check_listed_pools(settings);
        self.check_listeners(settings);
    }

    /// Checks that no listed pool is one of the cluster's own pools, which contain all nodes and which no source may
    /// fill (D2).
    fn check_listed_pools(&mut self, settings: &ControllerConfig) {
        let cluster = &settings.cluster_name;
        let own = [cluster.clone(), format!("{cluster}-IPv6")];
        for (index, pool) in settings.pools.iter().enumerate() {
            if own.iter().any(|name| name.eq_ignore_ascii_case(&pool.backend_pool)) {
                self.problems.push(Problem {
                    location: self.location("pools"),
                    field: format!("pools[{index}].backendPool"),
                    found: pool.backend_pool.clone(),
                    expected: format!("another pool than those of the whole cluster, {}", own.join(" and ")),
                    remedy: "name a pool that only this list fills, or correct clusterName".to_owned(),
                });
            }
        }
    }

    /// Checks that listeners have distinct addresses. The listener with TLS is open if certificate and key are set,
    /// that of CSDS if pools are configured.
    fn check_listeners(&mut self, settings: &ControllerConfig) {
        let (http, tls) = (&settings.http, &settings.http_tls);
        let health = ("http.healthListen", http.health_listen);
        let admin = ("http.adminListen", http.admin_listen);
        self.require_distinct(admin, &[health]);
        let (certificate, key) = ("http.tls.certificate", "http.tls.key");
        match (&tls.certificate, &tls.key) {
            (None, None) => {}
            (Some(_), Some(_)) => {
                self.require_distinct(("http.adminTlsListen", http.admin_tls_listen), &[health, admin]);
            }
            (None, Some(_)) => self.require_both(certificate, key),
            (Some(_), None) => self.require_both(key, certificate),
        }
        if !settings.pools.is_empty() {
            let with_tls = tls.certificate.is_some() && tls.key.is_some();
            let admin_tls = with_tls.then_some(("http.adminTlsListen", http.admin_tls_listen));
            let others: Vec<_> = [health, admin].into_iter().chain(admin_tls).collect();
            self.require_distinct(("http.csdsListen", http.csds_listen), &others);
        }
    }

    /// Reports a missing key that must be set together with another one, unless its value was refused already.
    fn require_both(&mut self, missing: &str, set: &str) {
        if self.problems.iter().any(|problem| problem.field == missing) {
            return;
        }
        self.problems.push(Problem {
            location: self.location(missing),
            field: missing.to_owned(),
            found: "nothing".to_owned(),
            expected: format!("the absolute path of a file in PEM, because {set} is set"),
            remedy: format!("set both, or remove {set} to open no listener with TLS"),
        });
    }

    /// Checks that a listener does not have the address of another one; port 0 never conflicts.
    fn require_distinct(&mut self, (field, address): (&str, SocketAddr), others: &[(&str, SocketAddr)]) {
        for (other, other_address) in
            others.iter().filter(|(_, other_address)| overlaps(*other_address, address))
        {
            if address.port() != 0 {
                self.problems.push(Problem {
                    location: self.location(field),
                    field: field.to_owned(),
                    found: address.to_string(),
                    expected: format!("another port than {other}, which is {other_address}"),
                    remedy: "give each listener a port of its own".to_owned(),
                });
            }
        }
    }

    /// Warns about keys whose values deviate from `compatibility: upstream`.
    fn report_deviations(&mut self, deviations: &[Deviation]) {
        for Deviation { path, expected } in deviations {
            let message = format!(
                "deviates from compatibility: upstream, which has {expected}; remove the key, or accept the \
                 difference"
            );
            self.warn(path, &message);
        }
    }

    fn identity(
        &mut self,
        settings: &ControllerConfig,
        cloud: &CloudConfig,
        cloud_file: &str,
        env: &BTreeMap<String, String>,
    ) -> Decision {
        let location = self.location("identity");
        let mut decision = identity::select(settings.identity, &location, cloud_file, cloud, env);
        let origin = self.origin("identity");
        decision
            .effective
            .insert(0, EffectiveValue::new("kind", decision.identity.name().to_owned().to_value(), origin));
        self.problems.append(&mut decision.problems);
        decision
    }

    /// Warns about doubtful combinations of both files.
    fn check_both_files(&mut self, settings: &ControllerConfig, cloud: &CloudConfig) {
        let is_default = self.origin("batching.retryInterval") == Origin::Default;
        if is_default && cloud.update_interval() > MAX_RETRY_INTERVAL {
            self.warn(
                "batching.retryInterval",
                "loadBalancerBackendPoolUpdateIntervalInSeconds of the cloud configuration is more than 60s; 60s is used",
            );
        }
        let cluster = &settings.cluster_name;
        let names = |name: &str| name.eq_ignore_ascii_case(cluster);
        let configurations = cloud.balancer_configurations();
        if cloud.uses_multiple_load_balancers() && !configurations.iter().any(|entry| names(&entry.name)) {
            let message = format!(
                "no entry of multipleStandardLoadBalancerConfigurations is named {cluster}, which the \
                 cloud-controller-manager requires; write its --cluster-name here"
            );
            self.warn("clusterName", &message);
        }
        if settings.migration.on_startup && settings.mode != Mode::Enforce {
            let message = format!(
                "mode is {}, so the migration logs its plan and changes nothing; set mode: enforce",
                settings.mode.as_str()
            );
            self.warn("migration.onStartup", &message);
        }
    }

    fn warn(&mut self, field: &str, message: &str) {
        let location = self.location(field);
        self.warnings.push(Warning { location, field: field.to_owned(), message: message.to_owned() });
    }

    fn origin(&self, path: &str) -> Origin {
        let entry = self.values.iter().find(|entry| entry.path == path);
        entry.map_or(Origin::Default, |entry| entry.origin.clone())
    }

    /// Returns the environment variable that sets the key, else the file.
    fn location(&self, path: &str) -> Location {
        match self.origin(path) {
            Origin::Environment(name) => Location::Environment(name),
            Origin::File | Origin::Secret | Origin::Default | Origin::Compatibility => {
                Location::File(self.file.to_owned())
            }
        }
    }
}

/// Returns whether two listeners cannot be open at the same time.
fn overlaps(left: SocketAddr, right: SocketAddr) -> bool {
    let everywhere = |address: SocketAddr| address.ip().is_unspecified();
    left.port() == right.port() && (left.ip() == right.ip() || everywhere(left) || everywhere(right))
}
