//! Safety and liveness of Discovery over random histories.

use proptest::prelude::*;

use super::*;

const LBS: [&str; 3] = ["a", "b", "c"];

/// One thing that happens.
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
        2 => (0..3_usize).prop_map(|lb| Event::Missing { lb }),
        1 => Just(Event::ForeignRelease),
        1 => Just(Event::Round),
        1 => Just(Event::Look),
        3 => (0..3_usize, answer()).prop_map(|(lb, answer)| Event::Arm { lb, answer }),
        1 => prop_oneof![Just(1_u64), Just(500), Just(7_000), Just(100_000)]
            .prop_map(|millis| Event::Latency { millis }),
        1 => (0..40_u64).prop_map(|call| Event::Stray { call }),
        6 => (0..30_000_u64).prop_map(|millis| Event::Pass { millis }),
    ]
}

fn happen(bench: &mut Bench, event: Event, open: &mut Option<CallId>) {
    match event {
        Event::Lists => bench.tell(In::ListsSynced),
        Event::Service { n, exposure, candidate: is } => {
            let mut fact = candidate(n);
            fact.exposure = exposure;
            if !is {
                fact.candidacy = Candidacy::NotSelected;
            }
            bench.service(fact);
        }
        Event::Gone { n } => bench.tell(In::Service(uid(n), None)),
        Event::Missing { lb } => {
            bench.tell(In::Missing(PoolId::new(LbName::new(LBS[lb]), PoolName::new("p"))));
        }
        Event::ForeignRelease => bench.tell(In::ForeignRelease),
        Event::Round => bench.tell(In::Round),
        Event::Look => bench.tell(In::Look),
        Event::Arm { lb, answer: Some(answer) } => bench.set(LBS[lb], answer),
        Event::Arm { lb, answer: None } => {
            bench.arm.remove(&LbName::new(LBS[lb]));
        }
        Event::Latency { millis } => bench.latency = Duration::from_millis(millis),
        // An answer that is not the one waited for: lost and found, or twice.
        Event::Stray { call } if *open != Some(CallId(call)) => {
            let before = bench.said.len();
            let result = Ok(balancer("x", &[]));
            bench.tell(In::Read { call: CallId(call), began: bench.now, result, puts: Default::default() });
            assert!(matches!(bench.said[before], Out::Sample(Sample::UnmatchedAnswer)));
        }
        Event::Stray { .. } => {}
        Event::Pass { millis } => bench.pass(millis),
    }
    *open = judge(bench);
}

/// Safety, over all that was said: one read at a time, each believed once; Synced once, when each load balancer
/// was told of. Tells which read is open.
fn judge(bench: &Bench) -> Option<CallId> {
    let (mut open, mut told, mut tried, mut synced) = (None, 0, BTreeSet::new(), 0);
    for said in &bench.said {
        match said {
            Out::Read { call, lb } => {
                assert!(open.replace((*call, lb.clone())).is_none(), "two reads at a time");
            }
            Out::Lb(seen) => {
                let (_, lb) = open.take().expect("what is told was read");
                assert_eq!(lb, seen.lb);
                told += 1;
                tried.insert(lb);
            }
            Out::View(view) if view.last_error.is_some() => {
                open = None;
                tried.insert(view.lb.clone());
            }
            Out::View(_) | Out::Answer(..) | Out::Sample(_) => {}
            Out::Synced => {
                synced += 1;
                assert_eq!(tried.len(), LBS.len(), "synced before each was tried");
                assert!(told > 0, "synced before any was seen");
            }
        }
    }
    assert!(synced <= 1);
    open.map(|(call, _)| call)
}

proptest! {
    #[test]
    fn d3_one_read_at_a_time_and_in_the_end_each_load_balancer_once_an_interval(
        events in prop::collection::vec(event(), 1..50)
    ) {
        let mut bench = Bench::new(&LBS);
        let mut open = None;
        for event in events {
            happen(&mut bench, event, &mut open);
        }
        for lb in LBS {
            bench.set(lb, Answer::Is(balancer(lb, &[])));
        }
        bench.latency = Duration::from_millis(10);
        happen(&mut bench, Event::Lists, &mut open);
        // Lost answers, retries and rounds all have an end.
        happen(&mut bench, Event::Pass { millis: 400_000 }, &mut open);
        prop_assert_eq!(bench.synced_said(), 1);
        bench.reads.clear();
        happen(&mut bench, Event::Pass { millis: 60_000 }, &mut open);
        let mut read: Vec<&str> = bench.reads.iter().map(|(_, lb)| lb.as_str()).collect();
        read.sort_unstable();
        prop_assert_eq!(read, LBS);
    }

    #[test]
    fn d3_each_foreign_release_is_followed_by_a_read_and_rounds_are_fifteen_seconds_apart(
        gaps in prop::collection::vec(0..12_000_u64, 1..30)
    ) {
        let mut bench = Bench::synced(&["a"]);
        bench.latency = Duration::from_millis(1);
        let mut releases = Vec::new();
        for millis in gaps {
            releases.push(bench.now.as_micros() / 1_000);
            bench.tell(In::ForeignRelease);
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
