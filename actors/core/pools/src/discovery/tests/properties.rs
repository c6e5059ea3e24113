//! Property tests of safety and liveness of Discovery over random histories.

use proptest::prelude::*;

use super::*;

/// More load balancers than places.
const LBS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

/// An event.
#[derive(Clone, Debug)]
enum Event {
    Lists,
    Service { n: u32, exposure: u64, candidate: bool },
    Gone { n: u32 },
    Missing { lb: usize },
    ForeignRelease,
    Round,
    Look,
    Arm { lb: usize, answer: Option<Answer> },
    Latency { millis: u64 },
    Throttled(bool),
    Stray { call: u64 },
    Pass { millis: u64 },
}

fn answer() -> impl Strategy<Value = Option<Answer>> {
    prop_oneof![
        3 => (0..3_u32).prop_map(|n| Some(Answer::Is(balancer("x", &[(n, ["shop-s0", "shop-s1", "kubernetes"][n as usize])])))),
        1 => Just(None),
        1 => Just(Some(Answer::Fails(FailureKind::Status(500)))),
        1 => Just(Some(Answer::Never)),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => Just(Event::Lists),
        4 => (0..3_u32, 0..2_u64, any::<bool>())
            .prop_map(|(n, exposure, candidate)| Event::Service { n, exposure, candidate }),
        1 => (0..3_u32).prop_map(|n| Event::Gone { n }),
        2 => (0..LBS.len()).prop_map(|lb| Event::Missing { lb }),
        1 => Just(Event::ForeignRelease),
        1 => Just(Event::Round),
        1 => Just(Event::Look),
        3 => (0..LBS.len(), answer()).prop_map(|(lb, answer)| Event::Arm { lb, answer }),
        1 => prop_oneof![Just(1_u64), Just(500), Just(7_000), Just(100_000)]
            .prop_map(|millis| Event::Latency { millis }),
        1 => any::<bool>().prop_map(Event::Throttled),
        1 => (0..80_u64).prop_map(|call| Event::Stray { call }),
        6 => (0..30_000_u64).prop_map(|millis| Event::Pass { millis }),
    ]
}

fn apply(fixture: &mut Fixture, event: Event) {
    match event {
        Event::Lists => fixture.step(In::ListsSynced),
        Event::Service { n, exposure, candidate: is } => {
            let mut fact = candidate(n);
            fact.exposure = exposure;
            if !is {
                fact.candidacy = Candidacy::NotSelected;
            }
            fixture.service(fact);
        }
        Event::Gone { n } => fixture.step(In::Service(uid(n), None)),
        Event::Missing { lb } => {
            fixture.step(In::Missing(PoolId::new(LbName::new(LBS[lb]), PoolName::new("p"))));
        }
        Event::ForeignRelease => fixture.step(In::ForeignRelease),
        Event::Round => fixture.step(In::StartRound),
        Event::Look => fixture.step(In::ReadSoon),
        Event::Arm { lb, answer: Some(answer) } => fixture.set(LBS[lb], answer),
        Event::Arm { lb, answer: None } => {
            fixture.arm.remove(&LbName::new(LBS[lb]));
        }
        Event::Latency { millis } => fixture.latency = Duration::from_millis(millis),
        // An unexpected answer: late, or repeated.
        Event::Throttled(throttled) => {
            fixture.throttled = throttled;
            if !throttled {
                fixture.send();
            }
        }
        Event::Stray { call } if fixture.open.values().all(|(open, _)| *open != CallId(call)) => {
            let before = fixture.said.len();
            let result = Ok(Some(balancer("x", &[])));
            fixture.step(In::Read {
                call: CallId(call),
                began: fixture.now,
                result,
                puts: Default::default(),
            });
            assert!(matches!(fixture.said[before], Out::Metric(Metric::UnmatchedAnswer)));
        }
        Event::Stray { .. } => {}
        Event::Pass { millis } => fixture.pass(millis),
    }
    check_safety(fixture);
}

/// Checks safety, over all outputs and reads in flight: Synced is sent once, when one load balancer was read, and no
/// more reads than places are in flight, apart from late ones.
fn check_safety(fixture: &Fixture) {
    let (mut seen, mut synced) = (0, 0);
    for said in &fixture.said {
        match said {
            Out::Lb(_) => seen += 1,
            Out::Synced => {
                synced += 1;
                assert!(seen > 0, "synced before any load balancer was read");
            }
            Out::Read { .. } | Out::View(_) | Out::Answer(..) | Out::Metric(_) => {}
        }
    }
    assert!(synced <= 1);
    let late = |asked: Now| asked.plus(Duration::from_secs(1)) <= fixture.now;
    let is_prompt = |lb: &LbName, asked: Now| fixture.unsent.contains_key(lb) || !late(asked);
    let prompt = fixture.open.iter().filter(|(lb, (_, asked))| is_prompt(lb, *asked)).count();
    assert!(prompt <= 8, "{prompt} reads at once: {:?}", fixture.open);
}

proptest! {
    #[test]
    fn d3_eight_lbs_are_read_concurrently_and_each_per_interval(
        events in prop::collection::vec(event(), 1..50)
    ) {
        let mut fixture = Fixture::new(&LBS);
        for event in events {
            apply(&mut fixture, event);
        }
        for lb in LBS {
            fixture.set(lb, Answer::Is(balancer(lb, &[])));
        }
        fixture.latency = Duration::from_millis(10);
        apply(&mut fixture, Event::Throttled(false));
        apply(&mut fixture, Event::Lists);
        // All lost answers, retries and rounds end within this time.
        apply(&mut fixture, Event::Pass { millis: 400_000 });
        prop_assert_eq!(fixture.synced_sent(), 1);
        fixture.reads.clear();
        apply(&mut fixture, Event::Pass { millis: 60_000 });
        let mut read: Vec<&str> = fixture.reads.iter().map(|(_, lb)| lb.as_str()).collect();
        read.sort_unstable();
        prop_assert_eq!(read, LBS);
    }

    #[test]
    fn d3_reads_follow_foreign_releases_in_rounds_of_15_s(
        gaps in prop::collection::vec(0..12_000_u64, 1..30)
    ) {
        let mut fixture = Fixture::synced(&["a"]);
        fixture.latency = Duration::from_millis(1);
        let mut releases = Vec::new();
        for millis in gaps {
            releases.push(fixture.now.as_micros() / 1_000);
            fixture.step(In::ForeignRelease);
            fixture.pass(millis);
        }
        fixture.pass(20_000);
        let reads = fixture.reads_of("a");
        for at in releases {
            let span = at + 2_000..=at + 17_001;
            prop_assert!(reads.iter().any(|read| span.contains(read)), "{} in {:?}", at, reads);
        }
        let extra: Vec<u64> = reads.into_iter().filter(|at| at % 60_000 != 0).collect();
        for pair in extra.windows(2) {
            prop_assert!(pair[1] - pair[0] >= 15_000, "{:?}", extra);
        }
    }

    #[test]
    fn d3_extra_rounds_are_at_least_two_seconds_apart(
        changes in prop::collection::vec((0..5_u32, 0..4_u64, 0..3_000_u64), 1..60)
    ) {
        let mut fixture = Fixture::synced(&["a"]);
        fixture.latency = Duration::from_millis(1);
        for (n, exposure, millis) in changes {
            let mut fact = candidate(n);
            fact.exposure = exposure;
            fixture.service(fact);
            fixture.pass(millis);
        }
        let all = fixture.reads_of("a");
        let extra: Vec<u64> = all.into_iter().filter(|at| at % 60_000 != 0).collect();
        for pair in extra.windows(2) {
            prop_assert!(pair[1] - pair[0] >= 2_000, "{:?}", extra);
        }
    }
}
