//! Charts as SVG: lines, steps and bands over time, with axes.

use std::fmt::Write as _;

/// Left and right edge of the plot, in the units of the chart.
const LEFT: f64 = 86.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 34.0;
/// The width of every chart.
const WIDTH: f64 = 1_040.0;
/// Maximum number of ticks on a time axis.
const MAX_TICKS: f64 = 8.0;

/// Division of the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Axis {
    /// Seconds from 0 to this.
    Time(f64),
    /// Seconds between these on a logarithmic scale.
    Log(f64, f64),
}

/// A chart under construction.
pub(super) struct Chart {
    axis: Axis,
    height: f64,
    most: f64,
    body: String,
}

/// Escapes a text for SVG and HTML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Formats a duration for the label of a tick.
pub(super) fn span(seconds: f64) -> String {
    if seconds <= 0.0 {
        return "0".to_owned();
    }
    let (value, unit) = match seconds {
        s if s < 0.999 => (s * 1_000.0, "ms"),
        s if s < 120.0 => (s, "s"),
        s if s < 7_200.0 => (s / 60.0, "min"),
        s => (s / 3_600.0, "h"),
    };
    let text = format!("{value:.1}");
    format!("{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

impl Chart {
    /// Returns a chart whose vertical axis goes from 0 to `most`.
    pub(super) fn new(axis: Axis, height: f64, most: f64) -> Self {
        Self { axis, height, most: most.max(1e-9), body: String::new() }
    }

    pub(super) fn x(&self, seconds: f64) -> f64 {
        let share = match self.axis {
            Axis::Time(end) => seconds / end.max(1e-9),
            Axis::Log(from, to) => (seconds.max(from) / from).ln() / (to / from).ln().max(1e-9),
        };
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (1.0 - (value / self.most).clamp(0.0, 1.0)) * (self.height - TOP - BOTTOM)
    }

    fn put(&mut self, text: std::fmt::Arguments) {
        self.body.write_fmt(text).expect("writing to a string cannot fail");
    }

    /// Draws horizontal lines with their values.
    pub(super) fn grid(&mut self, label: impl Fn(f64) -> String) {
        for part in 0..=4 {
            let value = self.most * f64::from(part) / 4.0;
            let (y, text) = (self.y(value), escaped(&label(value)));
            let (right, at, base) = (WIDTH - RIGHT, LEFT - 6.0, y + 3.5);
            self.put(format_args!(
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>\
                 <text class=\"end\" x=\"{at}\" y=\"{base:.1}\">{text}</text>\n"
            ));
        }
    }

    /// Draws a horizontal line with a name.
    pub(super) fn limit(&mut self, value: f64, name: &str) {
        if value > self.most {
            return;
        }
        let (y, right) = (self.y(value), WIDTH - RIGHT);
        let (base, name) = (y - 4.0, escaped(name));
        self.put(format_args!(
            "<line class=\"limit\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>\
             <text class=\"end\" x=\"{right}\" y=\"{base:.1}\">{name}</text>\n"
        ));
    }

    /// Draws a line through points, optionally in steps; points closer than a third of a unit are omitted.
    pub(super) fn line(&mut self, class: &str, points: &[(f64, f64)], steps: bool) {
        let mut path = String::new();
        let mut drawn: Option<(f64, f64)> = None;
        let last = points.len().saturating_sub(1);
        for (at, (seconds, value)) in points.iter().enumerate() {
            let (x, y) = (self.x(*seconds), self.y(*value));
            match drawn {
                None => write!(path, "M{x:.1} {y:.1}"),
                Some((px, py)) if at != last && x - px < 0.3 && (y - py).abs() < 0.3 => continue,
                Some(_) if steps => write!(path, "H{x:.1}V{y:.1}"),
                Some(_) => write!(path, "L{x:.1} {y:.1}"),
            }
            .expect("writing to a string cannot fail");
            drawn = Some((x, y));
        }
        self.put(format_args!("<path class=\"line {class}\" d=\"{path}\"/>\n"));
    }

    /// Draws a bar between two times and two heights in the units of the chart, with a tooltip.
    pub(super) fn bar(&mut self, class: &str, (from, to): (f64, f64), (top, height): (f64, f64), tip: &str) {
        let (left, right) = (self.x(from), self.x(to));
        let (width, tip) = ((right - left).max(0.6), escaped(tip));
        self.put(format_args!(
            "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\"><title>{tip}</title></rect>\n"
        ));
    }

    /// Draws the label of a row.
    pub(super) fn row_name(&mut self, name: &str, y: f64) {
        let (at, name) = (LEFT - 6.0, escaped(name));
        self.put(format_args!("<text class=\"end\" x=\"{at}\" y=\"{y:.1}\">{name}</text>\n"));
    }

    /// Marks times, with tooltips.
    pub(super) fn marks(&mut self, moments: &[(f64, String)]) {
        let bottom = self.height - BOTTOM;
        for (number, (seconds, words)) in moments.iter().enumerate() {
            let (x, words) = (self.x(*seconds), escaped(words));
            let (at, number) = (x + 3.0, number + 1);
            self.put(format_args!(
                "<g class=\"mark\"><title>{words}</title><line x1=\"{x:.1}\" y1=\"{TOP}\" \
                 x2=\"{x:.1}\" y2=\"{bottom}\"/><text x=\"{at:.1}\" y=\"{}\">{number}</text></g>\n",
                TOP + 8.0
            ));
        }
    }

    /// Returns the chart with its horizontal axis.
    pub(super) fn done(mut self, what: &str) -> String {
        let base = self.height - BOTTOM + 16.0;
        let bottom = self.height - BOTTOM;
        for seconds in ticks(self.axis) {
            let (x, text) = (self.x(seconds), span(seconds));
            let end = bottom + 4.0;
            self.put(format_args!(
                "<line class=\"axis\" x1=\"{x:.1}\" y1=\"{bottom}\" x2=\"{x:.1}\" y2=\"{end}\"/>\
                 <text class=\"mid\" x=\"{x:.1}\" y=\"{base}\">{text}</text>\n"
            ));
        }
        let (right, what, height) = (WIDTH - RIGHT, escaped(what), self.height);
        format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{what}\">\n{}\
             <line class=\"axis\" x1=\"{LEFT}\" y1=\"{bottom}\" x2=\"{right}\" y2=\"{bottom}\"/>\n</svg>\n",
            self.body
        )
    }
}

/// Returns the ticks of an axis.
fn ticks(axis: Axis) -> Vec<f64> {
    match axis {
        Axis::Time(end) => {
            let steps = [
                0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 1_800.0,
                3_600.0, 7_200.0, 14_400.0, 28_800.0, 86_400.0,
            ];
            let step = steps.into_iter().find(|step| end / step <= MAX_TICKS).unwrap_or(end);
            let count = (end / step).floor() as u32;
            (0..=count).map(|number| f64::from(number) * step).collect()
        }
        Axis::Log(from, to) => {
            let all = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 180.0, 600.0, 1_800.0, 3_600.0];
            let long = [10_800.0, 36_000.0, 86_400.0];
            all.into_iter().chain(long).filter(|at| (from..=to).contains(at)).collect()
        }
    }
}

/// Returns the next round number that is not below this.
pub(super) fn round_up(value: f64) -> f64 {
    let magnitude = 10_f64.powf(value.max(1.0).log10().floor());
    let found = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0].into_iter().find(|times| times * magnitude >= value);
    (found.unwrap_or(10.0) * magnitude).max(4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_ticks_are_round() {
        let words: Vec<String> = [0.0, 0.25, 1.0, 90.0, 600.0, 5_400.0, 10_800.0].map(span).to_vec();
        assert_eq!(words, ["0", "250 ms", "1 s", "90 s", "10 min", "90 min", "3 h"]);
        assert_eq!(ticks(Axis::Time(1_300.0)), [0.0, 300.0, 600.0, 900.0, 1_200.0]);
        assert_eq!(ticks(Axis::Log(0.5, 20.0)), [1.0, 3.0, 10.0]);
        assert_eq!([3.0, 13.0, 61.0, 250.0].map(round_up), [4.0, 20.0, 80.0, 400.0]);
    }

    #[test]
    fn text_cannot_become_markup_and_points_stay_inside() {
        let mut chart = Chart::new(Axis::Time(10.0), 100.0, 4.0);
        chart.marks(&[(99.0, "<b>&\"".to_owned())]);
        chart.line("ours", &[(0.0, 1.0), (5.0, 9.0)], true);
        let svg = chart.done("a <chart>");
        assert!(svg.contains("&lt;b&gt;&amp;&quot;") && !svg.contains("<b>"), "{svg}");
        assert!(svg.contains("x1=\"1024.0\"") && svg.contains("M86.0 52.5H555.0V12.0"), "{svg}");
    }
}
