//! The plan as text.

use std::fmt;

use super::{Plan, Reason};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blockers = self.blockers.iter();
        let blockers: Vec<String> =
            blockers.map(|it| format!("{}: {}; remedy: {}", it.object, it.finding, it.remedy)).collect();
        if self.is_empty() && blockers.is_empty() {
            return writeln!(f, "No Basic load balancer is in scope: there is nothing to migrate.");
        }
        if self.is_empty() {
            let is_unfinished = self.blockers.iter().any(|blocker| blocker.reason == Reason::Unfinished);
            let but =
                if is_unfinished { "a migration has not ended" } else { "not everything could be read" };
            writeln!(f, "No Basic load balancer was found, but {but}.")?;
            return list(f, "Blockers", &blockers);
        }
        writeln!(f, "Load balancers:")?;
        for replacement in &self.load_balancers {
            let standard = replacement.standard.as_deref().unwrap_or("nothing, it has no frontends");
            writeln!(f, "- {}\n  becomes {}", one_line(&replacement.basic), one_line(standard))?;
            if !replacement.addresses.is_empty() {
                writeln!(f, "  addresses: {}", replacement.addresses.join(", "))?;
            }
        }
        writeln!(f, "\nSteps:")?;
        for (number, step) in self.steps.iter().enumerate() {
            let outage = if step.outage { ", outage" } else { "" };
            let undo = if step.can_be_undone { "" } else { ", cannot be undone" };
            let (number, count) = (number + 1, step.objects.len());
            let objects = if count == 1 { "object" } else { "objects" };
            writeln!(f, "{number:2}. {} ({count} {objects}{outage}{undo})", step.title)?;
        }
        let outage = self.outage;
        writeln!(
            f,
            "\nExpected outage: {} to {} s, for all Services together. Connections break.",
            outage.least_seconds, outage.most_seconds
        )?;
        list(f, "What cannot be undone", &self.irreversible)?;
        list(f, "Notices", &self.notices)?;
        list(f, "Blockers", &blockers)?;
        if self.blockers.is_empty() {
            writeln!(f, "\nNothing blocks the migration.")?;
        }
        writeln!(f, "\nDigest: {}", self.digest)
    }
}

/// Returns a text from Azure on one line, so that it cannot imitate other lines of the plan.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Writes a list under a title; writes nothing if the list is empty.
pub(super) fn list(f: &mut fmt::Formatter<'_>, title: &str, lines: &[String]) -> fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{title}:")?;
    lines.iter().try_for_each(|line| writeln!(f, "- {}", one_line(line)))
}
