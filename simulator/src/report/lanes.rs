//! The charts of one run's lanes, of the shared Lease, and of the calls to ARM.

use std::collections::BTreeMap;

use super::measure::Picture;
use super::plot::{Axis, Chart, round_up, span};
use crate::lanes::{Fate, Write};

/// The height of a row in the units of the chart.
const ROW: f64 = 18.0;
/// Maximum number of rows.
const MAX_ROWS: usize = 48;
/// The window of Azure's quotas in seconds (reference: 1000 writes and 10000 reads in 5 minutes).
const WINDOW_S: f64 = 300.0;
/// The controller's default budgets of writes and reads in a window (W9).
const BUDGETS: [(bool, f64, &str); 2] = [(true, 500.0, "writes"), (false, 5_000.0, "reads")];

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// Draws each load balancer's writes from their arrival until the end of their operations.
pub(super) fn lanes(picture: &Picture) -> String {
    let mut rows: BTreeMap<&str, Vec<&Write>> = BTreeMap::new();
    for write in &picture.writes {
        rows.entry(&write.load_balancer).or_default().push(write);
    }
    let omitted = rows.len().saturating_sub(MAX_ROWS);
    let shown = rows.len().min(MAX_ROWS);
    let height = 46.0 + ROW * shown as f64;
    let mut chart = Chart::new(Axis::Time(seconds(picture.length_us)), height, 1.0);
    for (number, (name, writes)) in rows.into_iter().take(MAX_ROWS).enumerate() {
        let top = 12.0 + ROW * number as f64;
        chart.row_name(name, top + 12.0);
        for (class, from, to, tip) in bars(&chart, &writes) {
            chart.bar(class, (from, to), (top + 2.0, ROW - 4.0), &tip);
        }
    }
    chart.marks(&moments(picture));
    let mut text = chart.done("writes on each load balancer over time");
    if omitted > 0 {
        text += &format!("<p class=\"note\">{omitted} more load balancers are not shown.</p>\n");
    }
    text
}

/// Returns the bars of a row; bars that would overlap are merged.
fn bars(chart: &Chart, writes: &[&Write]) -> Vec<(&'static str, f64, f64, String)> {
    let mut bars: Vec<(&'static str, f64, f64, String)> = Vec::new();
    for write in writes {
        let (from, to) = (seconds(write.started_us), seconds(write.ended_us));
        let class = class_of(write);
        if let Some(last) = bars.last_mut().filter(|last| last.0 == class) {
            let gap = chart.x(from) - chart.x(last.2);
            let narrow = chart.x(to) - chart.x(last.1) < 2.0;
            if gap < 0.4 && narrow {
                last.2 = last.2.max(to);
                "several writes".clone_into(&mut last.3);
                continue;
            }
        }
        let what = write.pool.as_deref().unwrap_or("the load balancer");
        let tip = format!("{what}: {} at {} for {}", word_of(write), span(from), span(to - from));
        bars.push((class, from, to, tip));
    }
    bars
}

fn class_of(write: &Write) -> &'static str {
    match (write.fate, write.foreign) {
        (Fate::Refused | Fate::Lost, _) => "bad",
        (Fate::Superseded, _) => "cut",
        (Fate::Running | Fate::Done, false) => "ours",
        (Fate::Running | Fate::Done, true) => "others",
    }
}

fn word_of(write: &Write) -> String {
    match write.fate {
        Fate::Running | Fate::Done => format!("written, {}", write.status),
        Fate::Superseded => "superseded".to_owned(),
        Fate::Refused => format!("refused, {}", write.status),
        Fate::Lost => "the answer was lost".to_owned(),
    }
}

/// Draws the holders of the shared Lease.
pub(super) fn lease(picture: &Picture) -> String {
    let mut chart = Chart::new(Axis::Time(seconds(picture.length_us)), 46.0 + 2.0 * ROW, 1.0);
    for (number, (name, ours)) in [("controller", true), ("others", false)].into_iter().enumerate() {
        let top = 12.0 + ROW * number as f64;
        chart.row_name(name, top + 12.0);
        for hold in picture.holds.iter().filter(|hold| hold.is_ours() == ours) {
            let until = hold.until_us.unwrap_or(picture.length_us).min(picture.length_us);
            if hold.from_us >= until {
                continue;
            }
            let (from, until) = (seconds(hold.from_us), seconds(until));
            let tip = format!("{} at {} for {}", hold.holder, span(from), span(until - from));
            let class = if ours { "ours" } else { "others" };
            chart.bar(class, (from, until), (top + 2.0, ROW - 4.0), &tip);
        }
    }
    chart.done("holders of the shared Lease over time")
}

/// Draws the number of calls in the five minutes before each time.
pub(super) fn budget(picture: &Picture) -> String {
    let mut text = String::new();
    for (writes, budget, name) in BUDGETS {
        let counted = |foreign: bool| {
            let times = picture.requests.iter().filter(|(_, write, _)| *write == writes);
            let mine = times.filter(|(_, _, other)| *other == foreign).map(|(at, _, _)| seconds(*at));
            let mut points = sliding(mine.collect());
            points.retain(|(at, _)| *at <= seconds(picture.length_us));
            points.extend(points.last().map(|(_, count)| (seconds(picture.length_us), *count)));
            points
        };
        let (ours, others) = (counted(false), counted(true));
        let most = ours.iter().chain(&others).map(|(_, count)| *count).fold(0.0, f64::max);
        let most = if most > budget * 0.3 { most.max(budget) * 1.1 } else { most };
        let mut chart = Chart::new(Axis::Time(seconds(picture.length_us)), 150.0, round_up(most));
        chart.grid(|value| format!("{value:.0}"));
        chart.limit(budget, "the controller's budget");
        chart.line("others", &others, true);
        chart.line("ours", &ours, true);
        let what = format!("{name} in the five minutes before each moment");
        text += &format!("<p class=\"note\">{what}</p>\n");
        text += &chart.done(&what);
    }
    text
}

/// Returns the number of these times in a sliding window, at each change of the number.
fn sliding(mut moments: Vec<f64>) -> Vec<(f64, f64)> {
    moments.sort_by(f64::total_cmp);
    let mut changes: Vec<(f64, f64)> = moments.iter().map(|at| (*at, 1.0)).collect();
    changes.extend(moments.iter().map(|at| (at + WINDOW_S, -1.0)));
    changes.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut count = 0.0;
    let mut points = vec![(0.0, 0.0)];
    for (at, change) in changes {
        count += change;
        points.push((at, count));
    }
    points
}

/// Returns the actions of the scenario, with times in seconds.
pub(super) fn moments(picture: &Picture) -> Vec<(f64, String)> {
    picture.timeline.iter().map(|(at, words)| (seconds(*at), words.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w9_the_window_slides_over_the_calls() {
        let points = sliding(vec![10.0, 0.0]);
        assert_eq!(points, [(0.0, 0.0), (0.0, 1.0), (10.0, 2.0), (300.0, 1.0), (310.0, 0.0)]);
    }
}
