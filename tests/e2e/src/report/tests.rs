//! The reports as programs read them.

use std::time::Duration;

use serde_json::json;

use super::{Case, Outcome, Report};

fn case(name: &'static str, outcome: Outcome) -> Case {
    Case { suite: "cluster", name, about: "A <test>.", outcome, took: Duration::from_millis(1500) }
}

#[test]
fn junit_counts_and_escapes_and_the_folder_has_all_reports() {
    let mut report = Report::new("my \"cluster\"");
    report.add(case("one", Outcome::Passed("a & b".to_owned())));
    report.add(case("two", Outcome::Skipped("no\nnodes".to_owned())));
    assert!(!report.failed());
    report.add(case("three", Outcome::Failed("5 > 4\u{7}".to_owned())));
    assert!(report.failed());
    report.model_settings.insert("enforceIfMatch".to_owned(), json!(true));
    let folder = tempfile::tempdir().expect("a folder");
    report.write(&folder.path().join("cluster")).expect("it can be written");
    let read =
        |name: &str| std::fs::read_to_string(folder.path().join("cluster").join(name)).expect("a report");
    let counts = "tests=\"3\" failures=\"1\" skipped=\"1\" time=\"4.500\"";
    assert_eq!(
        read("junit.xml"),
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n\
             <testsuite name=\"my &quot;cluster&quot;\" {counts}>\n\
             <testcase classname=\"cluster\" name=\"one: A &lt;test&gt;.\" time=\"1.500\"><system-out>a &amp; b</system-out></testcase>\n\
             <testcase classname=\"cluster\" name=\"two: A &lt;test&gt;.\" time=\"1.500\"><skipped message=\"no&#10;nodes\"/></testcase>\n\
             <testcase classname=\"cluster\" name=\"three: A &lt;test&gt;.\" time=\"1.500\"><failure message=\"5 &gt; 4\\u{{7}}\"/></testcase>\n\
             </testsuite>\n</testsuites>\n"
        )
    );
    assert_eq!(read("model-settings.json"), "{\n  \"enforceIfMatch\": true\n}\n");
    assert!(report.text(folder.path()).ends_with("1 passed, 1 failed, 1 skipped\n"));
}
