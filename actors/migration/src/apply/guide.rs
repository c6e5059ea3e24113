//! Instructions for the operator when a migration has stopped.

use super::Stage;
use crate::inventory::Purpose;

/// A summary of the events and the next steps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guide {
    /// Purpose of the run.
    pub purpose: Purpose,
    /// Stage in which the migration stopped.
    pub stage: Stage,
    /// True if a Basic load balancer was deleted, so that there is no way back.
    pub past_return: bool,
    /// True if nodes may be detached, by this process or an earlier one.
    pub may_be_detached: bool,
    /// Problems, each with its object.
    pub problems: Vec<String>,
    /// The nodes that may be detached, by id.
    pub nodes: Vec<String>,
}

impl Guide {
    /// Returns whether traffic was not interrupted.
    #[must_use]
    pub fn is_before_outage(&self) -> bool {
        !self.past_return && !self.may_be_detached
    }

    /// Returns the steps for the operator.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("The migration stopped while {}.", self.stage.title())];
        lines.extend(self.problems.iter().map(|problem| format!("- {problem}")));
        if self.purpose == Purpose::IpPools {
            lines.push("The load balancers and their frontends are as they were.".to_owned());
            lines.push("Remove the cause and run the command again: it continues here.".to_owned());
        } else if self.past_return {
            lines.extend(recovery());
        } else if self.is_before_outage() {
            lines.push("Traffic was not interrupted, and nothing was deleted.".to_owned());
            lines.push("Public addresses that became static can stay so.".to_owned());
            lines.push("Remove the cause, make a new plan and apply it.".to_owned());
        } else if self.stage <= Stage::Inspect {
            lines.push("The progress of an earlier process was not read.".to_owned());
            lines.push(
                "Remove the cause and run `migrate-basic-lb apply` again: it continues where that process ended."
                    .to_owned(),
            );
        } else {
            lines.extend(self.rollback());
        }
        lines
    }

    fn rollback(&self) -> Vec<String> {
        let mut lines = vec![
            "No Basic load balancer was deleted, so you can go back or forward.".to_owned(),
            "To go forward, remove the cause and run `migrate-basic-lb apply` again: it continues here.".to_owned(),
            "To go back, restore the references of these nodes from the journal, models of scale sets first: send the part of \
             each stored body that is about networks in a PUT."
                .to_owned(),
        ];
        lines.extend(self.nodes.iter().map(|node| format!("- {node}")));
        lines.push(
            "Then read the backend pools of the Basic load balancers, which must list all nodes again."
                .to_owned(),
        );
        lines
    }
}

fn recovery() -> [String; 4] {
    [
        "At least one Basic load balancer is deleted: there is no way back, only forward.".to_owned(),
        "Do not start the cloud-controller-manager, and do not delete Services, public addresses or the journal.".to_owned(),
        "Remove the cause and run `migrate-basic-lb apply` again: it continues here, with the addresses of the journal."
            .to_owned(),
        "If the journal in the cluster cannot be read, pass its file with --journal.".to_owned(),
    ]
}
