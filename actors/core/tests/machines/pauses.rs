//! The answer to an operator's pause follows the pause to the writer (G6).

use std::collections::BTreeMap;
use std::sync::Arc;

use coordination::pauses::Out;
use model::operator_request::{Answer, Done, Effect, RequestId};
use model::policy::{OperatorPolicy, Pause};
use pool_core::route::{Delivery, Output, route};

#[test]
fn g6_the_writer_receives_a_pause_before_its_answer() {
    let policy = OperatorPolicy {
        everything: Some(Pause::default()),
        pools: BTreeMap::new(),
        ..OperatorPolicy::default()
    };
    let outputs = [
        Out::OperatorPolicy { term: None, policy: Arc::new(policy) },
        Out::Answer(RequestId(7), Answer::Done(Done::Paused(Effect::WhenRead))),
    ];
    let mut deliveries = Vec::new();
    outputs.into_iter().for_each(|outputs| route(Output::Pauses(outputs), &mut |one| deliveries.push(one)));
    assert!(!deliveries.iter().any(|one| matches!(one, Delivery::Host(_))), "no other edge is faster");
    let to_writer: Vec<writer::In> = deliveries
        .into_iter()
        .filter_map(|one| if let Delivery::Writer(input) = one { Some(input) } else { None })
        .collect();
    assert!(
        matches!(
            &to_writer[..],
            [
                writer::In::OperatorPolicy { policy, .. },
                writer::In::PassOn(RequestId(7), Answer::Done(Done::Paused(_)))
            ] if policy.only_observes()
        ),
        "{to_writer:?}"
    );
}
