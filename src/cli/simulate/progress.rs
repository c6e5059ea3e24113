//! Shows the progress of a run on standard error: bars on a terminal, else a line every 10 s.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use simulator::{InSync, Progress, Stage};
use tokio::time::Instant;

use crate::cli::eprint_lines;

/// The interval between lines without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// Template of a bar, which fits 80 columns with counts of five digits.
const BAR: &str = "{prefix:>13} [{bar:24}] {pos}/{len} {msg}";

/// The display of a run.
pub(super) enum ProgressDisplay {
    Bars { changes: ProgressBar, in_sync: ProgressBar, began: Instant },
    Lines { next: Instant },
}

impl ProgressDisplay {
    /// Returns bars if standard error is a terminal, else lines.
    pub(super) fn new() -> Self {
        if std::io::stderr().is_terminal() {
            Self::bars(ProgressDrawTarget::stderr())
        } else {
            Self::Lines { next: Instant::now() }
        }
    }

    fn bars(target: ProgressDrawTarget) -> Self {
        let both = MultiProgress::with_draw_target(target);
        let bar = |name: &'static str| {
            let style = ProgressStyle::with_template(BAR).expect("the template is valid");
            both.add(ProgressBar::new(0)).with_style(style.progress_chars("=> ")).with_prefix(name)
        };
        Self::Bars { changes: bar("changes"), in_sync: bar("pools in sync"), began: Instant::now() }
    }

    /// Shows this state.
    pub(super) fn show(&mut self, progress: &Progress) {
        let Progress {
            stage,
            changes: changes_made,
            changes_total,
            in_sync: InSync { pools, with_delayed_removals },
            ..
        } = *progress;
        let gets = progress.arm.load_balancer_gets + progress.arm.pool_gets;
        let puts = progress.arm.pool_puts;
        match self {
            Self::Bars { changes, in_sync, began } => {
                changes.set_length(changes_total);
                changes.set_message(elapsed(began.elapsed()));
                changes.set_position(changes_made);
                in_sync.set_length(progress.pools as u64);
                in_sync.set_message(format!("{gets} GETs, {puts} PUTs"));
                in_sync.set_position(pools as u64);
            }
            Self::Lines { next } => {
                let now = Instant::now();
                if now < *next {
                    return;
                }
                *next = now + LINE_INTERVAL;
                let stage = match stage {
                    Stage::Changing => "changing",
                    Stage::Settling => "settling",
                };
                eprint_lines([printable!(
                    "{stage}: {changes_made}/{changes_total} changes, {pools}/{} pools in sync ({with_delayed_removals} within \
                     removalDelay), {gets} GETs, {puts} PUTs",
                    progress.pools
                )]);
            }
        }
    }

    /// Leaves the last state on the terminal.
    pub(super) fn finish(&self) {
        match self {
            Self::Bars { changes, in_sync, .. } => {
                changes.abandon();
                in_sync.abandon();
            }
            Self::Lines { .. } => {}
        }
    }
}

/// Formats the time since the start, such as `1m05s`.
fn elapsed(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m{:02}s", seconds / 60, seconds % 60) }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc::{Sender, channel};

    use indicatif::TermLike;
    use simulator::models::arm::Counters;

    use super::*;

    /// A terminal of 80 columns that forwards the texts written to it.
    #[derive(Debug)]
    struct Terminal(Sender<String>);

    impl Terminal {
        fn send(&self, text: &str) -> io::Result<()> {
            self.0.send(text.to_owned()).map_err(io::Error::other)
        }
    }

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.send(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.send(text)
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn z2_the_bars_fit_80_columns_and_show_the_elapsed_time() {
        let (sender, written_texts) = channel();
        let mut display = ProgressDisplay::bars(ProgressDrawTarget::term_like(Box::new(Terminal(sender))));
        tokio::time::advance(Duration::from_secs(3_725)).await;
        let arm = Counters {
            load_balancer_gets: 60_000,
            pool_gets: 39_999,
            pool_puts: 99_999,
            ..Counters::default()
        };
        let progress = Progress {
            stage: Stage::Settling,
            changes: 99_999,
            changes_total: 99_999,
            in_sync: InSync { pools: 99_990, with_delayed_removals: 7 },
            pools: 99_999,
            arm,
        };
        display.show(&progress);
        display.finish();
        drop(display);
        let lines: Vec<String> = written_texts.try_iter().map(|text| text.trim_end().to_owned()).collect();
        let ends_with = |end: &str| lines.iter().any(|line| line.ends_with(end));
        assert!(ends_with("] 99999/99999 62m05s"), "{lines:?}");
        assert!(ends_with("] 99990/99999 99999 GETs, 99999 PUTs"), "{lines:?}");
        assert!(lines.iter().all(|line| line.chars().count() < 80), "{lines:?}");
    }
}
