//! The chart of the controller's status: pending work, and held removals.

use super::lanes;
use super::measure::Picture;
use super::plot::{Axis, Chart, round_up, span};
use crate::post_run_checks::StatusSample;

/// The height of the chart; the bands are at its top, above the line.
const HEIGHT: f64 = 190.0;
/// Upper edge and height of a band in the units of the chart.
const HELD: (f64, f64) = (13.0, 7.0);
const STOPPED: (f64, f64) = (21.0, 7.0);
/// Factor of the vertical axis that leaves room for the bands.
const ROOM: f64 = 1.25;

/// A period in which a value was not 0, and its maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stretch {
    from: f64,
    to: f64,
    most: usize,
}

/// Draws pending work as a line, and held and stopped removals as bands.
pub(super) fn picture(picture: &Picture, samples: &[StatusSample]) -> String {
    let end = samples.last().map_or(0.0, |last| last.at).max(picture.length_us as f64 / 1e6);
    let most = samples.iter().map(|sample| sample.depth).max().unwrap_or(0) as f64;
    let mut chart = Chart::new(Axis::Time(end), HEIGHT, round_up(most * ROOM));
    chart.grid(|value| format!("{value:.0}"));
    for held in stretches(samples, |sample| sample.held) {
        let tip = format!("up to {} pools held from {} to {}", held.most, span(held.from), span(held.to));
        chart.bar("held", (held.from, held.to), HELD, &tip);
    }
    for stopped in stretches(samples, |sample| usize::from(sample.stopped)) {
        let tip = format!("all removals stopped from {} to {}", span(stopped.from), span(stopped.to));
        chart.bar("bad", (stopped.from, stopped.to), STOPPED, &tip);
    }
    chart.marks(&lanes::moments(picture));
    let line: Vec<(f64, f64)> = samples.iter().map(|sample| (sample.at, sample.depth as f64)).collect();
    if !line.is_empty() {
        chart.line("ours", &line, true);
    }
    chart.done("waiting work and held removals over time")
}

/// Returns the periods in which a value is not 0: from the first such sample to the next sample with 0.
fn stretches(samples: &[StatusSample], what: impl Fn(&StatusSample) -> usize) -> Vec<Stretch> {
    let mut all: Vec<Stretch> = Vec::new();
    let mut open = false;
    for sample in samples {
        let count = what(sample);
        if let Some(last) = all.last_mut().filter(|_| open) {
            last.to = sample.at;
            last.most = last.most.max(count);
        } else if count > 0 {
            all.push(Stretch { from: sample.at, to: sample.at, most: count });
        }
        open = count > 0;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_at(at: f64, held: usize) -> StatusSample {
        StatusSample { at, depth: 1, held, stopped: false }
    }

    #[test]
    fn g5_a_period_ends_at_a_sample_and_the_last_may_be_open() {
        let samples = [
            sample_at(1.0, 0),
            sample_at(2.0, 3),
            sample_at(3.0, 5),
            sample_at(4.0, 0),
            sample_at(5.0, 0),
            sample_at(6.0, 1),
            sample_at(7.0, 1),
        ];
        let expected = [Stretch { from: 2.0, to: 4.0, most: 5 }, Stretch { from: 6.0, to: 7.0, most: 1 }];
        assert_eq!(stretches(&samples, |sample| sample.held), expected);
        assert_eq!(stretches(&samples, |sample| usize::from(sample.stopped)), []);
    }

    #[test]
    fn g5_held_and_stopped_removals_are_separate_bands() {
        let stopped = StatusSample { at: 1.0, depth: 3, held: 0, stopped: true };
        let draw = |sample: StatusSample| {
            picture(&Picture::default(), &[sample, StatusSample { at: 2.0, ..sample }])
        };
        let classes =
            |svg: &str| ["bad", "held"].map(|class| svg.matches(&format!("rect class=\"{class}\"")).count());
        assert_eq!(classes(&draw(stopped)), [1, 0]);
        assert_eq!(classes(&draw(StatusSample { held: 4, stopped: false, ..stopped })), [0, 1]);
        assert_eq!(classes(&draw(StatusSample { held: 0, stopped: false, ..stopped })), [0, 0]);
    }
}
