//! Progress reports of a migration, to the terminal of a command or to the log of the controller.

use std::io::IsTerminal as _;

use actors::kubernetes::NamespacedName;
use indicatif::{ProgressBar, ProgressStyle};
use migration::apply::Stage;

use crate::cli::eprint_lines;

/// The destination of progress reports.
#[derive(Clone)]
pub(super) enum Output {
    /// Standard error: a progress bar on a terminal, else lines.
    Terminal(Option<ProgressBar>),
    /// The log.
    Log,
}

impl Output {
    /// Returns the output of a command.
    pub(super) fn terminal() -> Output {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style =
                ProgressStyle::with_template("[{bar:40}] {pos}/{len} {msg}").expect("the template is valid");
            ProgressBar::new(0).with_style(style)
        });
        Output::Terminal(bar)
    }

    /// Reports the progress of a stage.
    pub(super) fn progress(&self, stage: Stage, done: usize, total: usize) {
        let title = stage.title();
        match self {
            Output::Terminal(Some(bar)) => {
                bar.set_length(total as u64);
                bar.set_position(done as u64);
                bar.set_message(title);
            }
            Output::Terminal(None) => eprint_lines([printable!("{title}: {done} of {total}")]),
            // A large cluster has thousands of objects in one stage.
            Output::Log if done == 0 || done == total => {
                tracing::info!(stage = title, done, total, "migration from Basic load balancers");
            }
            Output::Log => {
                tracing::debug!(stage = title, done, total, "migration from Basic load balancers");
            }
        }
    }

    /// Reports the number of resources that were read, and of those known so far.
    pub(super) fn reading(&self, read: usize, known: usize) {
        match self {
            Output::Terminal(_) => {
                eprint_lines([printable!("{read} of at least {known} resources are read")])
            }
            Output::Log => tracing::info!(read, known, "reading the resources in scope of a migration"),
        }
    }

    /// Reports the notices of a plan.
    pub(super) fn notices(&self, notices: &[String]) {
        match self {
            Output::Terminal(_) => eprint_lines(notices.iter().map(|notice| printable!("{notice}"))),
            Output::Log => {
                for notice in notices {
                    tracing::info!(notice, "about the migration from Basic load balancers");
                }
            }
        }
    }

    /// Reports that another client holds a Lease.
    pub(super) fn held_by(&self, holder: &str, lease: &NamespacedName) {
        match self {
            Output::Terminal(_) => eprint_lines([printable!(
                "{holder} holds the Lease {lease}: waiting until it is given back or expires; a controller gives it back \
                 when it ends"
            )]),
            Output::Log => tracing::info!(%lease, holder, "the migration waits for a Lease"),
        }
    }

    /// Reports that a Lease could not be read or written; the request is retried.
    pub(super) fn lease_failed(&self, lease: &NamespacedName, error: &str) {
        match self {
            Output::Terminal(_) => {
                eprint_lines([printable!("failed to write the Lease {lease}: {error}; retrying")])
            }
            Output::Log => {
                let remedy =
                    "HTTP 403: grant the permissions of docs/rbac.yaml; otherwise check the API server";
                tracing::warn!(%lease, error, remedy, "failed to write a Lease for the migration; retrying");
            }
        }
    }

    /// Reports that the journal could not be stored; the request is retried.
    pub(super) fn journal_failed(&self, error: &str) {
        match self {
            Output::Terminal(_) => {
                eprint_lines([printable!("failed to store the journal: {error}; retrying")])
            }
            Output::Log => {
                let effect = "nothing is detached before the journal is stored";
                let remedy = "HTTP 403: grant the permissions of docs/rbac-migration.yaml; otherwise check the API server";
                tracing::warn!(
                    error,
                    effect,
                    remedy,
                    "failed to store the journal of the migration; retrying"
                );
            }
        }
    }

    /// Reports that the cluster or Azure could not be read; the read is retried.
    pub(super) fn retrying_read(&self, error: &anyhow::Error) {
        match self {
            Output::Terminal(_) => eprint_lines([printable!("{error:#}; retrying")]),
            Output::Log => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    remedy =
                        "check that the API server and Azure answer; after four retries, the migration stops",
                    "failed to read the cluster or Azure for a migration; retrying"
                );
            }
        }
    }
}
