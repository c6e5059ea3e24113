//! Tests of which pool of a failed load balancer is written once more, and when.

use super::*;

/// Returns `lb` with the pools `shop-api` and `shop-web`, in these states.
fn balancer_in(own: Provisioning, pools: [Provisioning; 2]) -> Arc<LbFacts> {
    let named = ["shop-api", "shop-web"].into_iter().zip(pools);
    let pools = named.map(|(name, provisioning)| PoolFacts { provisioning, ..pool("lb", name, &[1]) });
    let facts = balancer("lb", pools.collect(), vec![rule(1, "shop-web"), rule(2, "shop-api")]);
    Arc::new(LbFacts { provisioning: own, ..(*facts).clone() })
}

const FINE: [Provisioning; 2] = [Provisioning::Succeeded; 2];

fn running() -> Fixture {
    let mut fixture = Fixture::running();
    fixture.service(fact(1, "web", part(&[1], &[])));
    fixture.service(fact(2, "api", part(&[1], &[])));
    fixture.observe(&balancer_in(Provisioning::Succeeded, FINE));
    fixture.take();
    fixture
}

/// Advances the clock by this many minutes, with one observation in each. Returns the pools that are written, each
/// with its minute.
fn pass(fixture: &mut Fixture, minutes: u64, facts: &Arc<LbFacts>) -> Vec<(u64, String)> {
    let mut written = Vec::new();
    for minute in 0..minutes {
        fixture.observe(facts);
        fixture.pass(60_000);
        for said in fixture.take() {
            if let Out::Rewrite(pool) = said {
                written.push((minute + 1, pool.pool.to_string()));
            }
        }
    }
    written
}

#[test]
fn one_pool_of_a_failed_load_balancer_is_written_ever_more_rarely() {
    let mut fixture = running();
    let written = pass(&mut fixture, 151, &balancer_in(Provisioning::Failed, FINE));
    let written: Vec<(u64, &str)> = written.iter().map(|(at, pool)| (*at, pool.as_str())).collect();
    assert_eq!(written, [(10, "shop-api"), (30, "shop-web"), (70, "shop-api"), (150, "shop-web")]);
}

#[test]
fn two_writes_are_at_most_six_hours_apart() {
    let mut fixture = running();
    let written = pass(&mut fixture, 48 * 60, &balancer_in(Provisioning::Failed, FINE));
    let last: Vec<u64> = written.iter().rev().take(3).map(|(at, _)| *at).collect();
    assert_eq!((last[0] - last[1], last[1] - last[2]), (360, 360));
}

#[test]
fn a_pool_that_failed_alone_is_the_one_that_is_written() {
    let mut fixture = running();
    let pools = [Provisioning::Succeeded, Provisioning::Failed];
    let written = pass(&mut fixture, 31, &balancer_in(Provisioning::Succeeded, pools));
    assert_eq!(written, [(10, "shop-web".to_owned()), (30, "shop-web".to_owned())]);
}

#[test]
fn q8_a_pool_that_cannot_be_rewritten_is_skipped() {
    let failed = balancer_in(Provisioning::Failed, FINE);
    let refuse = |fixture: &mut Fixture, name: &str| {
        fixture.send(In::RewriteSkipped(id("lb", name)));
        let rewritten = |said| {
            let Out::Rewrite(pool) = said else { return None };
            Some(pool.pool.to_string())
        };
        fixture.take().into_iter().filter_map(rewritten).collect::<Vec<_>>()
    };
    let mut fixture = running();
    assert_eq!(pass(&mut fixture, 10, &failed), [(10, "shop-api".to_owned())]);
    assert_eq!(refuse(&mut fixture, "shop-api"), ["shop-web"]);
    let next = (20, "shop-api".to_owned());
    assert_eq!(pass(&mut fixture, 39, &failed), [next], "the delay is as after one write");
    // Neither pool can be written. Both are asked again soon, with the same delay.
    assert_eq!(refuse(&mut fixture, "shop-api"), ["shop-web"]);
    assert_eq!(refuse(&mut fixture, "shop-web"), [""; 0]);
    assert_eq!(pass(&mut fixture, 2, &failed), [(1, "shop-api".to_owned())]);
    assert_eq!(pass(&mut fixture, 41, &failed), [(39, "shop-web".to_owned())]);
    // A standby requests nothing.
    fixture.reporting(None);
    assert_eq!(refuse(&mut fixture, "shop-web"), [""; 0]);
}

#[test]
fn a_load_balancer_that_recovers_begins_again() {
    let mut fixture = running();
    assert_eq!(pass(&mut fixture, 9, &balancer_in(Provisioning::Failed, FINE)), []);
    assert_eq!(pass(&mut fixture, 1, &balancer_in(Provisioning::Succeeded, FINE)), []);
    assert_eq!(pass(&mut fixture, 9, &balancer_in(Provisioning::Failed, FINE)), []);
    let updating = balancer_in(Provisioning::Updating, FINE);
    assert_eq!(pass(&mut fixture, 3, &updating), [], "nothing is written while an operation runs");
    assert_eq!(pass(&mut fixture, 2, &balancer_in(Provisioning::Failed, FINE)).len(), 1, "nor is it over");
}

#[test]
fn a_paused_or_held_pool_and_a_standby_write_none() {
    let mut fixture = running();
    let failed = balancer_in(Provisioning::Failed, FINE);
    for (n, name) in [(1, "web"), (2, "api")] {
        fixture.service(ServiceFact { paused: true, ..fact(n, name, part(&[1], &[])) });
    }
    assert_eq!(pass(&mut fixture, 25, &failed), []);
    fixture.service(fact(1, "web", part(&[1], &[])));
    assert_eq!(pass(&mut fixture, 11, &failed), [(1, "shop-web".to_owned())]);
    let mut fixture = running();
    fixture.reporting(None);
    assert_eq!(pass(&mut fixture, 31, &failed), []);
}

#[test]
fn a_pool_learns_that_its_load_balancer_failed() {
    let mut fixture = running();
    fixture.observe(&balancer_in(Provisioning::Failed, FINE));
    fixture.pass(1_000);
    let mut observed = 0;
    for said in fixture.take() {
        if let Out::Observe(_, observation) = said {
            assert_eq!(observation.facts.provisioning, Provisioning::Failed);
            observed += 1;
        }
    }
    assert_eq!(observed, 2);
}
