//! The findings of `check`, in order, and their output.

use clap::ValueEnum;
use model::redact::Printable;
use serde_json::{Value, json};

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Severity {
    /// No problem.
    Ok,
    /// The controller works, with a risk or without some functions.
    Warning,
    /// The controller does not work, or not completely.
    Problem,
}

impl Severity {
    fn as_str(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Warning => "warning",
            Severity::Problem => "problem",
        }
    }
}

/// The subject of a check; docs/commands.md explains each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Check {
    /// Both configuration files.
    Configuration,
    /// The endpoints of ARM and of its tokens.
    Endpoints,
    /// Whether the API server answers.
    ApiServer,
    /// The API server's clock.
    ApiServerClock,
    /// The rights of the service account.
    Rights,
    /// The Lease that the cloud-controller-manager takes too.
    SharedLease,
    /// Our own Lease and ConfigMap.
    OwnObjects,
    /// A token for ARM.
    Token,
    /// The managed load balancers.
    LoadBalancers,
    /// ARM's clock.
    ArmClock,
    /// The permissions of the identity.
    Permissions,
    /// The permissions of the identity on the virtual network.
    NetworkPermissions,
    /// Management locks.
    Locks,
    /// The Services that use pools.
    Candidates,
    /// Their pools.
    Pools,
    /// The xDS sources of pools.
    Sources,
}

impl Check {
    /// All checks, in their order.
    #[cfg(test)]
    pub(super) const ALL: [Check; 16] = [
        Check::Configuration,
        Check::Endpoints,
        Check::ApiServer,
        Check::ApiServerClock,
        Check::Rights,
        Check::SharedLease,
        Check::OwnObjects,
        Check::Token,
        Check::LoadBalancers,
        Check::ArmClock,
        Check::Permissions,
        Check::NetworkPermissions,
        Check::Locks,
        Check::Candidates,
        Check::Pools,
        Check::Sources,
    ];

    /// Returns the identifier in the output.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Check::Configuration => "configuration",
            Check::Endpoints => "endpoints",
            Check::ApiServer => "api-server",
            Check::ApiServerClock => "api-server-clock",
            Check::Rights => "rights",
            Check::SharedLease => "shared-lease",
            Check::OwnObjects => "own-objects",
            Check::Token => "token",
            Check::LoadBalancers => "load-balancers",
            Check::ArmClock => "arm-clock",
            Check::Permissions => "permissions",
            Check::NetworkPermissions => "network-permissions",
            Check::Locks => "locks",
            Check::Candidates => "candidates",
            Check::Pools => "pools",
            Check::Sources => "sources",
        }
    }
}

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Finding {
    check: Check,
    severity: Severity,
    what: Printable,
    /// The effect and the remedy; `None` if there is no problem.
    consequence: Option<Consequence>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Consequence {
    means: Printable,
    remedy: Printable,
}

/// All findings so far.
#[derive(Default, Debug)]
pub(super) struct Findings(Vec<Finding>);

/// Output format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(in crate::cli) enum OutputFormat {
    /// Text for operators.
    Text,
    /// JSON for programs.
    Json,
}

impl Findings {
    /// Adds a finding without a problem.
    pub(super) fn ok(&mut self, check: Check, what: impl Into<String>) {
        let what: String = what.into();
        self.0.push(Finding {
            check,
            severity: Severity::Ok,
            what: Printable::line(&what),
            consequence: None,
        });
    }

    /// Adds a warning.
    pub(super) fn warning(&mut self, check: Check, what: impl Into<String>, means: &str, remedy: &str) {
        self.push(Severity::Warning, check, what.into(), means, remedy);
    }

    /// Adds a problem.
    pub(super) fn problem(&mut self, check: Check, what: impl Into<String>, means: &str, remedy: &str) {
        self.push(Severity::Problem, check, what.into(), means, remedy);
    }

    /// Adds a warning or a problem, by its severity.
    pub(super) fn push(&mut self, severity: Severity, check: Check, what: String, means: &str, remedy: &str) {
        let consequence =
            Some(Consequence { means: Printable::line(means), remedy: Printable::line(remedy) });
        self.0.push(Finding { check, severity, what: Printable::line(&what), consequence });
    }

    /// Returns the severity of the worst finding.
    pub(super) fn worst(&self) -> Severity {
        self.0.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
    }

    fn count(&self, severity: Severity) -> usize {
        self.0.iter().filter(|finding| finding.severity == severity).count()
    }

    /// Renders all findings.
    pub(super) fn render(&self, format: OutputFormat) -> Printable {
        match format {
            OutputFormat::Text => Printable::joined(self.lines()),
            OutputFormat::Json => Printable::json(&format!("{:#}\n", self.json())),
        }
    }

    fn json(&self) -> Value {
        let findings = self.0.iter().map(|finding| {
            json!({
                "check": finding.check.as_str(),
                "severity": finding.severity.as_str(),
                "what": finding.what.as_str(),
                "means": finding.consequence.as_ref().map(|it| it.means.as_str()),
                "remedy": finding.consequence.as_ref().map(|it| it.remedy.as_str()),
            })
        });
        json!({
            "schemaVersion": 1,
            "version": env!("CARGO_PKG_VERSION"),
            "result": self.worst().as_str(),
            "problems": self.count(Severity::Problem),
            "warnings": self.count(Severity::Warning),
            "findings": findings.collect::<Vec<_>>(),
        })
    }

    fn lines(&self) -> Vec<Printable> {
        let mut lines = Vec::new();
        for Finding { check, severity, what, consequence } in &self.0 {
            lines.push(printable!("{:<8} {:<20} {what}", severity.as_str(), check.as_str()));
            if let Some(Consequence { means, remedy }) = consequence {
                let indent = " ".repeat(30);
                lines.push(printable!("{indent}it means: {means}"));
                lines.push(printable!("{indent}remedy:   {remedy}"));
            }
        }
        let (problems, warnings) = (self.count(Severity::Problem), self.count(Severity::Warning));
        lines.extend([printable!(""), printable!("{problems} problems, {warnings} warnings")]);
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_is_the_result_and_ok_has_no_remedy() {
        let mut findings = Findings::default();
        findings.ok(Check::ApiServer, "answers");
        assert_eq!(findings.worst(), Severity::Ok);
        findings.warning(Check::ArmClock, "9 s", "a risk", "set it");
        findings.problem(Check::Rights, "no", "nothing works", "allow it");
        assert_eq!(findings.worst(), Severity::Problem);
        let output = findings.json();
        assert_eq!((&output["problems"], &output["warnings"]), (&json!(1), &json!(1)));
        assert_eq!(output["findings"][0]["remedy"], Value::Null);
        assert!(findings.render(OutputFormat::Text).as_str().contains("remedy:   allow it"));
    }

    #[test]
    fn any_finding_is_one_printable_line() {
        let mut findings = Findings::default();
        findings.ok(Check::ApiServer, "pool a\u{1b}[2J\u{7}\u{202e}\nok forged");
        findings.warning(Check::ArmClock, "a\nb", "c\nd", "e\u{202e}f");
        let output = findings.render(OutputFormat::Text).to_string();
        assert!(output.contains("pool a\\u{1b}[2J\\u{7}\\u{202e}\\u{a}ok forged\n"), "{output}");
        assert_eq!(output.lines().count(), 6, "{output}");
        assert!(!output.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{output}");
    }

    #[test]
    fn every_check_is_explained_and_no_other() {
        let document = include_str!("../../../docs/commands.md");
        let section = document.split("\n### ").find(|section| section.starts_with("What is looked at"));
        let rows =
            section.unwrap_or_default().lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let explained: Vec<&str> = rows.map(|(word, _)| word).collect();
        assert_eq!(explained, Check::ALL.map(Check::as_str));
    }
}
