//! Scenario files.

use super::*;
use simulator_models::arm::{FaultTarget, Visibility};

#[test]
fn z2_every_scenario_with_a_name_can_be_read_and_says_what_it_shows() {
    for (name, text) in NAMED {
        let story =
            Story::named(name).expect("it has this name").unwrap_or_else(|bad| panic!("{name}: {bad}"));
        assert_eq!(story.name.as_deref(), Some(name));
        assert!(text.starts_with("# "), "{name} begins with what it shows");
        assert!(
            name == "realistic" || name == "ccm-removes-needed" || !story.happenings.is_empty(),
            "{name}"
        );
    }
    assert!(Story::named("nobody-knows").is_none());
}

#[test]
fn z2_a_scenario_sets_the_world_the_knobs_and_what_happens_when() {
    let text = "# A story.\nservices 12\nload-balancers 3   # few\ndual-stack\narm operation 2s..8s\n\
                arm visible at-end\nccm updater\ncontroller members.removalDelay 5s\n\
                pods rollout within 2m step 10s\nsettle 1m\n\
                at 40s arm up\nat 10s arm down\nat 1s arm faults any/every:2:503 every:3:lost\n";
    let story = Story::read(text).expect("a story");
    assert_eq!((story.size.services, story.size.load_balancers, story.size.dual_stack), (12, 3, true));
    assert_eq!(story.arm.operation, Some(Latency::LogNormal { median_us: 2_000_000, p95_us: 8_000_000 }));
    assert_eq!(story.arm.visibility, Visibility::AtEnd);
    assert_eq!(story.beside, Beside::ManagerAndUpdater);
    assert_eq!(story.controller, json!({"members": {"removalDelay": "5s"}}));
    assert_eq!(story.pattern, Pattern::Rollout { within_us: 120_000_000, step_us: 10_000_000 });
    let words: Vec<&str> = story.happenings.iter().map(|happening| &*happening.words).collect();
    assert_eq!(words, ["arm faults any/every:2:503 every:3:lost", "arm down", "arm up"]);
    let Act::Arm(Knob::Faults(faults)) = &story.happenings[0].act else { panic!("faults") };
    assert_eq!((faults.len(), faults[0].target), (2, FaultTarget::Any));
}

#[test]
fn z2_a_line_that_says_nothing_is_refused_by_its_number_with_what_was_expected() {
    for (text, line) in [
        ("services 3\npods sometimes\n", 2),
        ("nodes 0\n", 1),
        ("at soon arm down\n", 1),
        ("at 1s arm sideways\n", 1),
        ("colour blue\n", 1),
        ("ccm perhaps\n", 1),
    ] {
        let bad = Story::read(text).expect_err(text);
        assert_eq!(bad.line, line, "{bad}");
        assert!(!bad.expected.is_empty() && bad.to_string().contains("expected"), "{bad}");
    }
}

#[test]
fn z2_a_faster_story_divides_its_own_times_and_rounds_retry_after_up() {
    let text = "arm operation 6s\narm retry-after 10\npods churn 2/s for 60s\nsettle 90s\n\
                at 30s arm get-latency 300ms\nat 45s arm faults every:2:429:4\n";
    let story = Story::read(text).expect("a story").faster(3);
    assert_eq!(story.arm.operation, Some(Latency::Fixed { us: 2_000_000 }));
    assert_eq!(story.arm.operation_retry_after_s, Some(4));
    assert_eq!(story.pattern, Pattern::Churn { rate: 6.0, duration_us: 20_000_000 });
    assert_eq!((story.settle.as_secs(), story.happenings[0].at_us), (30, 10_000_000));
    assert_eq!(story.happenings[0].act, Act::Arm(Knob::GetLatency(Latency::Fixed { us: 100_000 })));
    let Act::Arm(Knob::Faults(faults)) = &story.happenings[1].act else { panic!("faults") };
    let arm::FaultEffect::Answer(answer) = &faults[0].effect else { panic!("an answer") };
    assert_eq!(answer.retry_after.as_deref(), Some("2"));
    assert_eq!(story.controller["batching"]["minInterval"], "1666ms");
}

#[test]
fn z2_what_happens_again_and_again_does_so_while_pods_change_and_each_time_to_another_service() {
    let text = "pods rollout within 70s step 1s\nat 25s arm down\nevery 20s a service changes\n";
    let story = Story::read(text).expect("a story");
    let times: Vec<(u64, Act)> =
        story.timetable().into_iter().map(|one| (one.at_us / 1_000_000, one.act)).collect();
    let touch = |at, number| (at, Act::TouchService(number));
    assert_eq!(times, [touch(20, 1), (25, Act::ArmDown(true)), touch(40, 2), touch(60, 3)]);
    assert!(Story::read("every 0 a service changes\n").is_err());
}
