//! The report as a page: numbers and charts in one self-contained file.

use std::fmt::Write as _;

use super::measure::Picture;
use super::plot::{Axis, Chart, escaped, round_up, span};
use super::{DrainReport, Report, SERVICE, UPSTREAM, lanes, watched};

const STYLE: &str = include_str!("page.css");

/// Returns the whole page.
pub(super) fn page(report: &Report) -> String {
    let title = match &report.scenario {
        Some(name) => format!("Simulation: {name}"),
        None => "Simulation".to_owned(),
    };
    let mut body = format!("<h1>{}</h1>\n", escaped(&title));
    let class = if report.passed() { "good" } else { "failed" };
    let whose = if report.upstream.is_some() { format!("{SERVICE}: ") } else { String::new() };
    body += &format!("<p class=\"verdict {class}\">{whose}{}</p>\n", escaped(&report.verdict()));
    body += &tiles(report);
    body += &section("Pools out of sync", &converging(report), &timeline(&report.picture));
    if let Some(checks) = &report.checks {
        let legend = "<p class=\"legend\"><i class=\"ours\"></i>what waits <i class=\"held\"></i>guards hold removals \
                      back <i class=\"bad\"></i>all removals are stopped</p>\n";
        let picture = watched::picture(&report.picture, &checks.samples);
        body += &section("Held removals and waiting work", &picture, legend);
    }
    body += &section("How long changes waited for their members", &waiting(report), "");
    body += &run("Load balancers", report, true);
    if let Some(upstream) = &report.upstream {
        body += "<h1>Upstream's updater, same scenario and seed</h1>\n";
        let class = if upstream.passed() { "good" } else { "failed" };
        let verdict = escaped(&format!("{UPSTREAM}: {}", upstream.verdict()));
        body += &format!("<p class=\"verdict {class}\">{verdict}</p>\n");
        body += &tiles(upstream);
        body += &run("Load balancers under upstream", upstream, false);
    }
    body += &tables(report);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        escaped(&title)
    )
}

fn section(title: &str, picture: &str, more: &str) -> String {
    format!("<section>\n<h2>{}</h2>\n{picture}{more}</section>\n", escaped(title))
}

/// Returns the charts of one run, without the controller if it does not run.
fn run(title: &str, report: &Report, with_service: bool) -> String {
    let picture = &report.picture;
    let service = if with_service { "<i class=\"ours\"></i>the controller " } else { "" };
    let legend = format!(
        "<p class=\"legend\">{service}<i class=\"others\"></i>the cloud-controller-manager \
         <i class=\"cut\"></i>superseded <i class=\"bad\"></i>refused or lost</p>\n"
    );
    let (share, longest) = (report.lease.duty * 100.0, report.lease.longest_hold_seconds);
    let held = match with_service {
        true => {
            format!("The controller held it for {share:.0} % of the time, at most {longest:.1} s at once.")
        }
        false => format!("Others held it for {:.0} % of the time.", report.lease.others * 100.0),
    };
    let duty = format!("<p class=\"note\">{held}</p>\n");
    section(title, &lanes::lanes(picture), &legend)
        + &section("The shared Lease", &lanes::lease(picture), &duty)
        + &section("Calls and budget", &lanes::budget(picture), "")
}

/// Returns the main results.
fn tiles(report: &Report) -> String {
    let took = &report.convergence_seconds;
    let shown = |time: Option<f64>| time.map_or_else(|| "never".to_owned(), span);
    let DrainReport { nodes, reached_in_time, wrong_entries, .. } = report.admin_state;
    let leaving = [
        ("nodes drained in time", nodes, format!("{reached_in_time} of {nodes}")),
        ("entries with a wrong admin state", wrong_entries, wrong_entries.to_string()),
    ];
    let leaving = leaving.into_iter().filter(|(_, count, _)| *count > 0);
    let p = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), span);
    let tiles = [
        ("change → members in place, p50", p(took.p50)),
        ("change → members in place, p99", p(took.p99)),
        ("pools out of sync at the end", format!("{} of {}", report.wrong_pools, report.pools)),
        ("all done after the first change", shown(report.first_event_to_converged_seconds)),
        ("changes still waiting", took.waiting.to_string()),
        ("writes", report.picture.writes.len().to_string()),
    ];
    let mut text = "<div class=\"tiles\">\n".to_owned();
    for (name, value) in tiles.into_iter().chain(leaving.map(|(name, _, value)| (name, value))) {
        writeln!(text, "<div><b>{}</b><span>{}</span></div>", escaped(&value), escaped(name))
            .expect("writing to a string cannot fail");
    }
    text + "</div>\n"
}

fn points(picture: &Picture) -> Vec<(f64, f64)> {
    let begin = std::iter::once((0.0, 0.0));
    let steps = picture.out_of_sync.iter().map(|(at, count)| (*at as f64 / 1e6, *count as f64));
    let mut points: Vec<(f64, f64)> = begin.chain(steps).collect();
    let last = points.last().map_or(0.0, |(_, count)| *count);
    points.push((picture.length_us as f64 / 1e6, last));
    points
}

/// Draws the number of pools out of sync over time, for the controller and, if it ran, for upstream's updater.
fn converging(report: &Report) -> String {
    let ours = points(&report.picture);
    let own_length = report.picture.length_us as f64 / 1e6;
    let legend = |both: bool| {
        let upstream = if both { " <i class=\"others\"></i>upstream's updater" } else { "" };
        format!("<p class=\"legend\"><i class=\"ours\"></i>the controller{upstream}</p>\n")
    };
    let draw = |length: f64, other: Option<&[(f64, f64)]>| {
        let all = ours.iter().chain(other.unwrap_or_default());
        let most = all.map(|(_, count)| *count).fold(0.0, f64::max);
        let mut chart = Chart::new(Axis::Time(length), 220.0, round_up(most));
        chart.grid(|value| format!("{value:.0}"));
        chart.marks(&lanes::moments(&report.picture));
        if let Some(other) = other {
            chart.line("others", other, true);
        }
        chart.line("ours", &ours, true);
        chart.done("pools out of sync over time")
    };
    match &report.upstream {
        None => draw(own_length, None) + &legend(false),
        Some(upstream) => {
            let theirs = points(&upstream.picture);
            let length = own_length.max(upstream.picture.length_us as f64 / 1e6);
            draw(length, Some(&theirs)) + &legend(true)
        }
    }
}

/// Draws the cumulative distribution of the waits of changes.
fn waiting(report: &Report) -> String {
    let upstream = report.upstream.as_deref();
    let all = [Some(report), upstream].into_iter().flatten();
    let sorted: Vec<&[u64]> = all.map(|report| report.picture.waits_us.as_slice()).collect();
    let ends = sorted.iter().flat_map(|waits| waits.first().into_iter().chain(waits.last()));
    let ends: Vec<f64> = ends.map(|us| *us as f64 / 1e6).collect();
    let from = ends.iter().copied().fold(f64::INFINITY, f64::min).clamp(0.01, 1e5);
    let to = ends.iter().copied().fold(0.0, f64::max).max(from * 10.0);
    let mut chart = Chart::new(Axis::Log(from, to), 200.0, 100.0);
    chart.grid(|value| format!("{value:.0} %"));
    for (class, report) in [("others", upstream), ("ours", Some(report))] {
        let Some(report) = report else { continue };
        let count = report.picture.waits_us.len() + report.convergence_seconds.waiting;
        let share = |at: usize| 100.0 * (at + 1) as f64 / count.max(1) as f64;
        let waits = report.picture.waits_us.iter().enumerate();
        let points: Vec<(f64, f64)> = waits.map(|(at, us)| (*us as f64 / 1e6, share(at))).collect();
        chart.line(class, &points, true);
    }
    let hint = "<p class=\"note\">A line that ends below 100 % has changes that still wait at the end.</p>\n";
    chart.done("the part of the changes that waited no longer than a time") + hint
}

fn timeline(picture: &Picture) -> String {
    if picture.timeline.is_empty() {
        return String::new();
    }
    let mut text = "<ol class=\"timeline\">\n".to_owned();
    for (at, words) in &picture.timeline {
        let time = span(*at as f64 / 1e6);
        writeln!(text, "<li>{time}: {}</li>", escaped(words)).expect("writing to a string cannot fail");
    }
    text + "</ol>\n"
}

fn tables(report: &Report) -> String {
    let text = format!("<pre>{}</pre>\n", escaped(&report.text()));
    section("All numbers", &text, "")
}
