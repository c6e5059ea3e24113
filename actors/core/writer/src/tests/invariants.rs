//! Tests of invariants across pools that end the process in every build (A4). Each test breaks one on purpose.

use super::*;
use crate::in_flight::Purpose;

#[test]
#[should_panic(expected = "a second PUT at the same time on the load balancer of lb/shop-other")]
fn a4_a_concurrent_put_on_a_load_balancer_ends_the_process() {
    let mut fixture = Fixture::leading(params());
    let other = pool("lb", "other");
    let (attempt, read) = fixture.begin(&other, &[1]);
    // A PUT that the lane does not know.
    fixture.writer.calls.open(at(0), Purpose::Put(pool("lb", "web"), attempt));
    fixture.answer(read, read_of(pool_with(&other, &[]), "W/1"));
}

#[test]
#[should_panic(expected = "more lanes are busy than may write at the same time")]
fn a4_more_busy_lanes_than_slots_end_the_process() {
    let mut fixture = Fixture::leading(Params { turns: 2, ..params() });
    fixture.writer.busy = 3;
    fixture.step(In::Withdraw(pool("lb", "web")));
}
