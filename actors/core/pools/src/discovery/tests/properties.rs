//! Safety and liveness of Discovery over random histories.

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

fn apply(bench: &mut Bench, event: Event) {
    match event {
        Event::Lists => bench.step(In::ListsSynced),
        Event::Service { n, exposure, candidate: is } => {
            let mut fact = candidate(n);
            fact.exposure = exposure;
            if !is {
                fact.candidacy = Candidacy::NotSelected;
            }
            bench.service(fact);
        }
        Event::Gone { n } => bench.step(In::Service(uid(n), None)),
        Event::Missing { lb } => {
            bench.step(In::Missing(PoolId::new(LbName::new(LBS[lb]), PoolName::new("p"))));
        }
        Event::ForeignRelease => bench.step(In::ForeignRelease),
        Event::Round => bench.step(In::StartRound),
        Event::Look => bench.step(In::ReadSoon),
        Event::Arm { lb, answer: Some(answer) } => bench.set(LBS[lb], answer),
        Event::Arm { lb, answer: None } => {
            bench.arm.remove(&LbName::new(LBS[lb]));
        }
        Event::Latency { millis } => bench.latency = Duration::from_millis(millis),
        // An unexpected answer: late, or repeated.
        Event::Throttled(throttled) => {
            bench.throttled = throttled;
            if !throttled {
                bench.send();
            }
        }
        Event::Stray { call } if bench.open.values().all(|(open, _)| *open != CallId(call)) => {
            let before = bench.said.len();
            let result = Ok(Some(balancer("x", &[])));
            bench.step(In::Read { call: CallId(call), began: bench.now, result, puts: Default::default() });
            assert!(matches!(bench.said[before], Out::Metric(Metric::UnmatchedAnswer)));
        }
        Event::Stray { .. } => {}
        Event::Pass { millis } => bench.pass(millis),
    }
    check_safety(bench);
}

/// Checks safety, over all outputs and reads in flight: Synced is sent once, when one load balancer was read, and no
/// more reads than places are in flight, apart from late ones.
fn check_safety(bench: &Bench) {
    let (mut seen, mut synced) = (0, 0);
    for said in &bench.said {
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
    let late = |asked: Now| asked.plus(Duration::from_secs(1)) <= bench.now;
    let is_prompt = |lb: &LbName, asked: Now| bench.unsent.contains_key(lb) || !late(asked);
    let prompt = bench.open.iter().filter(|(lb, (_, asked))| is_prompt(lb, *asked)).count();
    assert!(prompt <= 8, "{prompt} reads at once: {:?}", bench.open);
}

proptest! {
    #[test]
    fn d3_eight_at_once_and_each_once_per_interval(
        events in prop::collection::vec(event(), 1..50)
    ) {
        let mut bench = Bench::new(&LBS);
        for event in events {
            apply(&mut bench, event);
        }
        for lb in LBS {
            bench.set(lb, Answer::Is(balancer(lb, &[])));
        }
        bench.latency = Duration::from_millis(10);
        apply(&mut bench, Event::Throttled(false));
        apply(&mut bench, Event::Lists);
        // Lost answers, retries and rounds all have an end.
        apply(&mut bench, Event::Pass { millis: 400_000 });
        prop_assert_eq!(bench.synced_sent(), 1);
        bench.reads.clear();
        apply(&mut bench, Event::Pass { millis: 60_000 });
        let mut read: Vec<&str> = bench.reads.iter().map(|(_, lb)| lb.as_str()).collect();
        read.sort_unstable();
        prop_assert_eq!(read, LBS);
    }

    #[test]
    fn d3_reads_follow_foreign_releases_in_rounds_of_15_s(
        gaps in prop::collection::vec(0..12_000_u64, 1..30)
    ) {
        let mut bench = Bench::synced(&["a"]);
        bench.latency = Duration::from_millis(1);
        let mut releases = Vec::new();
        for millis in gaps {
            releases.push(bench.now.as_micros() / 1_000);
            bench.step(In::ForeignRelease);
            bench.pass(millis);
        }
        bench.pass(20_000);
        let reads = bench.reads_of("a");
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
        let mut bench = Bench::synced(&["a"]);
        bench.latency = Duration::from_millis(1);
        for (n, exposure, millis) in changes {
            let mut fact = candidate(n);
            fact.exposure = exposure;
            bench.service(fact);
            bench.pass(millis);
        }
        let all = bench.reads_of("a");
        let extra: Vec<u64> = all.into_iter().filter(|at| at % 60_000 != 0).collect();
        for pair in extra.windows(2) {
            prop_assert!(pair[1] - pair[0] >= 2_000, "{:?}", extra);
        }
    }
}
