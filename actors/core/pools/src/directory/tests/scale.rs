//! Tests of the work that one event causes among many Services. They assert counts, not times.

use super::*;

const SERVICES: u32 = 10_000;
const BALANCERS: u32 = 50;

fn name(n: u32) -> String {
    format!("s{n}")
}

fn observation(lb: u32, now: Now) -> LbObservation {
    let lb_name = format!("lb-{lb}");
    let own = || (0..SERVICES).filter(|n| n % BALANCERS == lb);
    let pools = own().map(|n| pool(&lb_name, &format!("shop-s{n}"), &[1, 2])).collect();
    let rules = own().map(|n| rule(n, &format!("shop-s{n}"))).collect();
    LbObservation {
        lb: LbName::new(&*lb_name),
        began: now,
        facts: Some(balancer_of(&lb_name, pools, rules)),
        puts: Default::default(),
    }
}

/// Returns the same as [`balancer`], except that the `n`-th rule uses the `n`-th pool.
fn balancer_of(lb: &str, mut pools: Vec<PoolFacts>, rules: Vec<RuleFacts>) -> Arc<LbFacts> {
    for (pool, rule) in pools.iter_mut().zip(&rules) {
        pool.rules = vec![Arc::clone(&rule.name)];
    }
    let mut facts = LbFacts::clone(&balancer(lb, Vec::new(), Vec::new()));
    facts.pools = pools.into_iter().map(Arc::new).collect();
    facts.rules = rules;
    Arc::new(facts)
}

#[test]
fn a2_one_event_among_10000_services_computes_one_pool() {
    let mut machine = Directory::new(params());
    let mut out = Vec::new();
    let now = Now::from_millis(1_000);
    for n in 0..SERVICES {
        let fact = Arc::new(fact(n, &name(n), part(&[1, 2], &[])));
        machine.step(now, In::Service(uid(n), Some(fact)), &mut out);
    }
    for lb in 0..BALANCERS {
        machine.step(now, In::Lb(observation(lb, now)), &mut out);
    }
    machine.step(now, In::ListsSynced, &mut out);
    machine.step(now, In::DiscoverySynced, &mut out);
    machine.tick(now, &mut out);
    let count = |out: &[Out]| out.iter().filter(|said| matches!(said, Out::Assign(_))).count();
    assert_eq!((count(&out), machine.computed_levels), (10_000, 10_000));

    out.clear();
    let mut changed = fact(77, &name(77), part(&[1, 3], &[]));
    changed.revision = 1;
    machine.step(now, In::Service(uid(77), Some(Arc::new(changed))), &mut out);
    machine.tick(now, &mut out);
    assert_eq!((count(&out), out.len(), machine.computed_levels), (1, 1, 10_001));

    out.clear();
    machine.step(now, In::Lb(observation(3, now)), &mut out);
    machine.tick(now, &mut out);
    assert_eq!((count(&out), out.len()), (0, 200), "one observation for each pool of the load balancer");
    assert_eq!(machine.computed_levels, 10_201);

    let at = machine.deadline().expect("a member is to leave");
    out.clear();
    machine.tick(at, &mut out);
    assert_eq!((count(&out), machine.computed_levels), (1, 10_202));
    assert_eq!(machine.deadline(), None);
}
