//! What an operator does when a migration has stopped.

use super::Stage;
use crate::inventory::Purpose;

/// What has happened, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guide {
    /// What was to be done.
    pub purpose: Purpose,
    /// Where the migration stopped.
    pub stage: Stage,
    /// Whether a Basic load balancer was deleted, so that there is no way back.
    pub past_return: bool,
    /// Whether nodes may be detached, by this process or an earlier one.
    pub may_be_detached: bool,
    /// What went wrong, with the object.
    pub problems: Vec<String>,
    /// The nodes that may be detached, by id.
    pub nodes: Vec<String>,
}

impl Guide {
    /// Whether traffic was not interrupted.
    #[must_use]
    pub fn is_before_outage(&self) -> bool {
        !self.past_return && !self.may_be_detached
    }

    /// The steps for the operator.
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
        } else if self.stage <= Stage::Look {
            lines.push("How far an earlier process came was not read.".to_owned());
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
