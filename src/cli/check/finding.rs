//! What `check` has found, one thing after the other, and how that is printed.

use clap::ValueEnum;
use model::redact::Printable;
use serde_json::{Value, json};

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Severity {
    /// As it should be.
    Ok,
    /// The controller works, with a risk or without a part of what it does.
    Warning,
    /// The controller cannot do its job, or not all of it.
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

/// What was looked at; docs/commands.md explains each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Check {
    /// Both files.
    Configuration,
    /// Where we sign in and whom we ask.
    Endpoints,
    /// The API server answers.
    ApiServer,
    /// Its clock.
    ApiServerClock,
    /// What our service account may do.
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
    /// What our identity may do.
    Permissions,
    /// What our identity may do with the virtual network.
    NetworkPermissions,
    /// Management locks.
    Locks,
    /// The Services that want a pool.
    Candidates,
    /// Their pools.
    Pools,
    /// What control planes say of the pools that are filled from them.
    Sources,
}

impl Check {
    /// Each of them, in the order in which they are made.
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

    /// The word by which programs know it.
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

/// One thing that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Finding {
    check: Check,
    severity: Severity,
    what: Printable,
    /// What follows from it, and what to do; nothing for what is as it should be.
    consequence: Option<Consequence>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Consequence {
    means: Printable,
    remedy: Printable,
}

/// What was found so far.
#[derive(Default, Debug)]
pub(super) struct Findings(Vec<Finding>);

/// The form in which it is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(in crate::cli) enum Form {
    /// For operators.
    Text,
    /// For programs.
    Json,
}

impl Findings {
    /// Something is as it should be.
    pub(super) fn ok(&mut self, check: Check, what: impl Into<String>) {
        let what: String = what.into();
        self.0.push(Finding {
            check,
            severity: Severity::Ok,
            what: Printable::line(&what),
            consequence: None,
        });
    }

    /// Something is a risk.
    pub(super) fn warning(&mut self, check: Check, what: impl Into<String>, means: &str, remedy: &str) {
        self.bad(Severity::Warning, check, what.into(), means, remedy);
    }

    /// Something blocks it.
    pub(super) fn problem(&mut self, check: Check, what: impl Into<String>, means: &str, remedy: &str) {
        self.bad(Severity::Problem, check, what.into(), means, remedy);
    }

    /// Something is not as it should be, and this bad.
    pub(super) fn wrong(
        &mut self,
        severity: Severity,
        check: Check,
        what: String,
        means: &str,
        remedy: &str,
    ) {
        self.bad(severity, check, what, means, remedy);
    }

    fn bad(&mut self, severity: Severity, check: Check, what: String, means: &str, remedy: &str) {
        let consequence =
            Some(Consequence { means: Printable::line(means), remedy: Printable::line(remedy) });
        self.0.push(Finding { check, severity, what: Printable::line(&what), consequence });
    }

    /// The worst of them.
    pub(super) fn worst(&self) -> Severity {
        self.0.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
    }

    fn count(&self, severity: Severity) -> usize {
        self.0.iter().filter(|finding| finding.severity == severity).count()
    }

    /// All of it.
    pub(super) fn shown(&self, form: Form) -> Printable {
        match form {
            Form::Text => Printable::joined(self.lines()),
            Form::Json => Printable::json(&format!("{:#}\n", self.json())),
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
    fn the_worst_finding_is_the_result_and_only_what_is_wrong_has_a_remedy() {
        let mut findings = Findings::default();
        findings.ok(Check::ApiServer, "answers");
        assert_eq!(findings.worst(), Severity::Ok);
        findings.warning(Check::ArmClock, "9 s", "a risk", "set it");
        findings.problem(Check::Rights, "no", "nothing works", "allow it");
        assert_eq!(findings.worst(), Severity::Problem);
        let shown = findings.json();
        assert_eq!((&shown["problems"], &shown["warnings"]), (&json!(1), &json!(1)));
        assert_eq!(shown["findings"][0]["remedy"], Value::Null);
        assert!(findings.shown(Form::Text).as_str().contains("remedy:   allow it"));
    }

    #[test]
    fn any_finding_is_one_printable_line() {
        let mut findings = Findings::default();
        findings.ok(Check::ApiServer, "pool a\u{1b}[2J\u{7}\u{202e}\nok forged");
        findings.warning(Check::ArmClock, "a\nb", "c\nd", "e\u{202e}f");
        let shown = findings.shown(Form::Text).to_string();
        assert!(shown.contains("pool a\\u{1b}[2J\\u{7}\\u{202e}\\u{a}ok forged\n"), "{shown}");
        assert_eq!(shown.lines().count(), 6, "{shown}");
        assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{shown}");
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
