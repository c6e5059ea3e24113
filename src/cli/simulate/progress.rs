//! Shows how far a run is: bars on a terminal, a line now and then elsewhere. Both go to standard error.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use simulator::{Progress, Stage};
use tokio::time::Instant;

use crate::cli::tell;

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// What people see of a run.
pub(super) enum Shown {
    Bars { changes: ProgressBar, right: ProgressBar },
    Lines { next: Instant },
}

impl Shown {
    /// Chooses by what standard error is.
    pub(super) fn new() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines { next: Instant::now() };
        }
        let both = MultiProgress::new();
        let bar = |name: &'static str| {
            let form = "{prefix:>12} [{bar:40}] {pos}/{len} {msg}";
            let style = ProgressStyle::with_template(form).expect("the template is valid");
            both.add(ProgressBar::new(0)).with_style(style.progress_chars("=> ")).with_prefix(name)
        };
        Self::Bars { changes: bar("changes"), right: bar("pools right") }
    }

    /// Shows this state.
    pub(super) fn show(&mut self, progress: &Progress) {
        let right = progress.pools.saturating_sub(progress.wrong);
        let calls = format!(
            "{} GET, {} PUT, {} polls",
            progress.arm.load_balancer_gets + progress.arm.pool_gets,
            progress.arm.pool_puts,
            progress.arm.polls
        );
        match self {
            Self::Bars { changes, right: bar } => {
                changes.set_length(progress.changes_total);
                changes.set_position(progress.changes);
                bar.set_length(progress.pools as u64);
                bar.set_position(right as u64);
                bar.set_message(calls);
            }
            Self::Lines { next } => {
                let now = Instant::now();
                if now < *next {
                    return;
                }
                *next = now + LINE_EVERY;
                let stage = match progress.stage {
                    Stage::Changing => "changing",
                    Stage::Settling => "settling",
                };
                tell([printable!(
                    "{stage}: {}/{} changes, {right}/{} pools right, {calls}",
                    progress.changes,
                    progress.changes_total,
                    progress.pools
                )]);
            }
        }
    }

    /// Leaves the last state standing.
    pub(super) fn finish(&self) {
        match self {
            Self::Bars { changes, right } => {
                changes.abandon();
                right.abandon();
            }
            Self::Lines { .. } => {}
        }
    }
}
