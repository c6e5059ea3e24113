//! Where a migration reports how it goes on: to the terminal of a command, or to the log of the controller.

use std::io::IsTerminal as _;

use actors::kubernetes::Place;
use indicatif::{ProgressBar, ProgressStyle};
use migration::apply::Stage;

use crate::cli::tell;

/// The way of reports.
#[derive(Clone)]
pub(super) enum Output {
    /// To standard error: a bar on a terminal, else lines.
    Terminal(Option<ProgressBar>),
    /// To the log.
    Log,
}

impl Output {
    /// That of a command.
    pub(super) fn terminal() -> Output {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style =
                ProgressStyle::with_template("[{bar:40}] {pos}/{len} {msg}").expect("the template is valid");
            ProgressBar::new(0).with_style(style)
        });
        Output::Terminal(bar)
    }

    /// How far a stage is.
    pub(super) fn progress(&self, stage: Stage, done: usize, total: usize) {
        let title = stage.title();
        match self {
            Output::Terminal(Some(bar)) => {
                bar.set_length(total as u64);
                bar.set_position(done as u64);
                bar.set_message(title);
            }
            Output::Terminal(None) => tell([printable!("{title}: {done} of {total}")]),
            // A large cluster has thousands of objects in one stage.
            Output::Log if done == 0 || done == total => {
                tracing::info!(stage = title, done, total, "migration from Basic load balancers");
            }
            Output::Log => {
                tracing::debug!(stage = title, done, total, "migration from Basic load balancers");
            }
        }
    }

    /// How many resources are read.
    pub(super) fn reading(&self, read: usize, known: usize) {
        match self {
            Output::Terminal(_) => tell([printable!("{read} of at least {known} resources are read")]),
            Output::Log => tracing::info!(read, known, "reads what a migration is about"),
        }
    }

    /// What an operator must know of a plan.
    pub(super) fn notices(&self, notices: &[String]) {
        match self {
            Output::Terminal(_) => tell(notices.iter().map(|notice| printable!("{notice}"))),
            Output::Log => {
                for notice in notices {
                    tracing::info!(notice, "about the migration from Basic load balancers");
                }
            }
        }
    }

    /// Another client holds a Lease.
    pub(super) fn held_by(&self, holder: &str, lease: &Place) {
        match self {
            Output::Terminal(_) => tell([printable!(
                "{holder} holds the Lease {lease}: waiting until it is given back or expires; a controller gives it back \
                 when it ends"
            )]),
            Output::Log => tracing::info!(%lease, holder, "the migration waits for a Lease"),
        }
    }

    /// A Lease could not be read or written; that is tried again.
    pub(super) fn lease_failed(&self, lease: &Place, why: &str) {
        match self {
            Output::Terminal(_) => tell([printable!("the Lease {lease} could not be written: {why}")]),
            Output::Log => {
                tracing::warn!(%lease, why, "failed to write a Lease for the migration");
            }
        }
    }

    /// The journal could not be stored; that is tried again.
    pub(super) fn journal_failed(&self, why: &str) {
        match self {
            Output::Terminal(_) => tell([printable!("the journal could not be stored: {why}")]),
            Output::Log => tracing::warn!(why, "failed to store the journal of the migration"),
        }
    }

    /// The cluster or Azure could not be read; that is tried again.
    pub(super) fn reads_again(&self, why: &anyhow::Error) {
        match self {
            Output::Terminal(_) => tell([printable!("{why:#}: trying again")]),
            Output::Log => {
                tracing::warn!(why = format!("{why:#}"), "failed to read what a migration is about")
            }
        }
    }
}
