//! The text of a scenario: its lines and their times. `act` and `expect` interpret the remaining words of a line.

use std::time::Duration;

/// A parsed scenario.
pub struct Story {
    /// The name of its file, or a name from a test.
    pub name: String,
    /// Its lines without comments, in order.
    pub lines: Vec<Line>,
}

/// One line.
pub struct Line {
    /// Its number in the file, from 1.
    pub number: usize,
    /// Time at which it runs.
    pub when: When,
    /// The words after that.
    pub words: Vec<String>,
}

/// Kind of a line, and the time at which it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before the start of the controller.
    Given,
    /// This long after the controller became ready, or after the previous line if that is later.
    At(Duration),
    /// This long after the previous line.
    After(Duration),
    /// After the previous line: an expectation.
    Expect,
    /// At the end: expectations that replace the computed ones.
    Finally,
}

impl Story {
    /// Parses a scenario.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut lines: Vec<Line> = Vec::new();
        for (index, text) in text.lines().enumerate() {
            let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            if words.first().is_none_or(|word| word.starts_with('#')) {
                continue;
            }
            let number = index + 1;
            let (when, spoken) = when(&words).map_err(|error| format!("{name}:{number}: {error}"))?;
            words.drain(..spoken);
            if when == When::Given && lines.last().is_some_and(|line| line.when != When::Given) {
                return Err(format!("{name}:{number}: given comes before everything else"));
            }
            if words.is_empty() {
                return Err(format!("{name}:{number}: the line ends too early"));
            }
            lines.push(Line { number, when, words });
        }
        Ok(Self { name: name.to_owned(), lines })
    }
}

/// Parses the time of a line; returns it with its number of words. `at 2s expect …` waits like an action and then
/// expects.
fn when(words: &[String]) -> Result<(When, usize), String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match *words.as_slice() {
        ["given", ..] => Ok((When::Given, 1)),
        ["expect", ..] => Ok((When::Expect, 1)),
        ["finally", ..] => Ok((When::Finally, 1)),
        ["at", time, ..] => Ok((When::At(duration(time)?), 2)),
        ["after", time, ..] => Ok((When::After(duration(time)?), 2)),
        _ => Err("a line begins with given, at, after, expect or finally".to_owned()),
    }
}

/// Returns a duration: `0.2s`, or whole numbers with units as on the command line of `simulate`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.strip_suffix('s').and_then(|number| number.parse::<f64>().ok());
    match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(duration) => Ok(duration),
        None => simulator::duration(text).map_err(|error| error.to_string()),
    }
}
