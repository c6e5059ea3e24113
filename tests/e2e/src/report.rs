//! The reports: JUnit for programs, text for operators, and the settings of the simulated ARM.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};

/// Outcome of a test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The test passed; for a question: the answer.
    Passed(String),
    /// The test could not run here; for a question: it was not answered.
    Skipped(String),
    /// The test failed.
    Failed(String),
}

/// One test.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) suite: &'static str,
    pub(crate) name: &'static str,
    /// The subject of the test.
    pub(crate) about: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
}

/// All tests of a run.
pub(crate) struct Report {
    cluster: String,
    cases: Vec<Case>,
    /// The settings of the simulated ARM that follow from the answers.
    pub(crate) model_settings: Map<String, Value>,
}

impl Report {
    pub(crate) fn new(cluster: &str) -> Self {
        Self { cluster: cluster.to_owned(), cases: Vec::new(), model_settings: Map::new() }
    }

    pub(crate) fn add(&mut self, case: Case) {
        self.cases.push(case);
    }

    /// Returns whether a test has failed.
    pub(crate) fn failed(&self) -> bool {
        self.cases.iter().any(|case| matches!(case.outcome, Outcome::Failed(_)))
    }

    /// Writes `junit.xml`, and `model-settings.json` where there are settings.
    pub(crate) fn write(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("junit.xml"), self.junit())?;
        if !self.model_settings.is_empty() {
            let model_settings = Value::Object(self.model_settings.clone());
            std::fs::write(folder.join("model-settings.json"), format!("{model_settings:#}\n"))?;
        }
        Ok(())
    }

    /// Returns the text to print.
    pub(crate) fn text(&self, folder: &Path) -> String {
        let mut text = String::new();
        for case in &self.cases {
            let (word, detail) = match &case.outcome {
                Outcome::Passed(detail) => ("ok", detail),
                Outcome::Skipped(detail) => ("open", detail),
                Outcome::Failed(detail) => ("FAILED", detail),
            };
            let Case { suite, name, about, .. } = case;
            text.push_str(&format!("{word:7}{suite}/{name}: {about}\n"));
            if !detail.is_empty() {
                text.push_str(&format!("       {}\n", detail.replace('\n', "\n       ")));
            }
        }
        if !self.model_settings.is_empty() {
            text.push_str("\nSettings of the simulated ARM that follow (docs/simulator.md):\n");
            for (name, value) in &self.model_settings {
                text.push_str(&format!("  {name}: {value}\n"));
            }
        }
        let [passed, skipped, failed] = self.counts();
        text.push_str(&format!(
            "\nThe reports are in {}.\n{passed} passed, {failed} failed, {skipped} skipped\n",
            folder.display()
        ));
        text
    }

    fn counts(&self) -> [usize; 3] {
        let mut counts = [0; 3];
        for case in &self.cases {
            match case.outcome {
                Outcome::Passed(_) => counts[0] += 1,
                Outcome::Skipped(_) => counts[1] += 1,
                Outcome::Failed(_) => counts[2] += 1,
            }
        }
        counts
    }

    fn junit(&self) -> String {
        let [_, skipped, failed] = self.counts();
        let seconds: f64 = self.cases.iter().map(|case| case.took.as_secs_f64()).sum();
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let counts = format!(
            "tests=\"{}\" failures=\"{failed}\" skipped=\"{skipped}\" time=\"{seconds:.3}\"",
            self.cases.len()
        );
        xml.push_str(&format!(
            "<testsuites {counts}>\n<testsuite name=\"{}\" {counts}>\n",
            escaped(&self.cluster)
        ));
        for case in &self.cases {
            xml.push_str(&format!(
                "<testcase classname=\"{}\" name=\"{}: {}\" time=\"{:.3}\">",
                case.suite,
                case.name,
                escaped(case.about),
                case.took.as_secs_f64()
            ));
            xml.push_str(&match &case.outcome {
                Outcome::Passed(detail) if detail.is_empty() => String::new(),
                Outcome::Passed(detail) => format!("<system-out>{}</system-out>", escaped(detail)),
                Outcome::Skipped(reason) => format!("<skipped message=\"{}\"/>", escaped(reason)),
                Outcome::Failed(reason) => format!("<failure message=\"{}\"/>", escaped(reason)),
            });
            xml.push_str("</testcase>\n");
        }
        xml.push_str("</testsuite>\n</testsuites>\n");
        xml
    }
}

/// Escapes a text for XML, also in an attribute. Control characters, which XML does not allow, are removed.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            control if control.is_control() => drop(write!(escaped, "\\u{{{:x}}}", u32::from(control))),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
