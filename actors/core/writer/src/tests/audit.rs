//! Tests of the record of a write, with ARM's correlation id (E1).

use super::*;
use crate::plan::{Plan, plan};
use crate::record::record;
use model::arm::AdminState;
use model::write_record::{MemberList, WriteRecord};

/// Returns the record of the write that brings a pool to these members.
fn planned(facts: &PoolFacts, taken: Option<&MembershipWrite>, draining: &Draining) -> WriteRecord {
    let Plan::Edit(change) = plan(facts, taken.map(|taken| &taken.level), draining, None) else {
        panic!("nothing is to be changed")
    };
    record(facts, &change, taken)
}

fn web() -> PoolId {
    pool("lb", "web")
}

/// Returns nodes and addresses, in pairs.
fn named(list: &MemberList) -> Vec<String> {
    assert_eq!(list.count, list.named.len());
    let pairs = list.nodes().into_iter().zip(list.addresses());
    pairs.map(|(node, address)| format!("{node} {address}")).collect()
}

#[test]
fn e1_added_and_removed_members_are_named() {
    let taken = taken_level(&web(), &[1, 2]);
    let made = planned(&pool_with(&web(), &[2, 3]), Some(&taken), &Draining::default());
    assert_eq!(
        (named(&made.added), named(&made.removed)),
        (vec!["n1 10.0.0.1".into()], vec!["n3 10.0.0.3".into()])
    );
    assert_eq!((made.trigger, made.down.count, made.restored.count), (Some(Trigger::Endpoints), 0, 0));
    let services: Vec<ServiceKey> = taken.services.into_values().collect();
    assert_eq!(made.services, services);

    let addition = planned(&pool_with(&web(), &[]), Some(&taken_level(&web(), &[1])), &Draining::default());
    assert_eq!((addition.added.count, addition.removed.count), (1, 0));
    let removal =
        planned(&pool_with(&web(), &[1, 2]), Some(&taken_level(&web(), &[1])), &Draining::default());
    assert_eq!((removal.added.count, named(&removal.removed)), (0, vec!["n2 10.0.0.2".into()]));
}

#[test]
fn e1_a_write_of_admin_states_names_the_nodes_and_no_service() {
    let down = planned(&pool_with(&web(), &[1, 2]), None, &drains(2));
    assert_eq!((down.added.count, down.removed.count, named(&down.down)), (0, 0, vec!["n2 10.0.0.2".into()]));
    assert_eq!((down.trigger, down.services), (Some(Trigger::NodeAdminState), vec![]));

    // The same with membership that is in sync.
    let taken = taken_level(&web(), &[1, 2]);
    let beside = planned(&pool_with(&web(), &[1, 2]), Some(&taken), &drains(2));
    assert_eq!((beside.trigger, beside.services), (Some(Trigger::NodeAdminState), vec![]));

    let mut facts = pool_with(&web(), &[1]);
    facts.entries[0].admin_state = AdminState::Down;
    let restorable = Draining { restorable: [ip(1).into()].into(), ..Draining::default() };
    assert_eq!(named(&planned(&facts, None, &restorable).restored), ["n1 10.0.0.1"]);
}

#[test]
fn e1_a_new_member_of_a_draining_node_is_added_and_down() {
    let made = planned(&pool_with(&web(), &[1]), Some(&taken_level(&web(), &[1, 2])), &drains(2));
    assert_eq!(
        (named(&made.added), named(&made.down)),
        (vec!["n2 10.0.0.2".into()], vec!["n2 10.0.0.2".into()])
    );
}

#[test]
fn e1_the_pool_gets_the_correlation_id_of_its_write() {
    let mut fixture = Fixture::leading(params());
    for (provisioning, lb) in [(Provisioning::Succeeded, "a"), (Provisioning::Updating, "b")] {
        let web = pool(lb, "web");
        let (attempt, call) = fixture.begin_put(&web, &[1]);
        let ArmAnswer::Put(answer) = accepted(provisioning, RetryAfter::Absent) else { panic!("a PUT") };
        let answer = PutAccepted { correlation_id: Some("c-1".into()), ..answer };
        let mut output = fixture.answer(call, ArmAnswer::Put(answer));
        if provisioning == Provisioning::Updating {
            let later = fixture.until(fixture.now + 1_100);
            let is_poll = |call: &&&ArmCall| matches!(call.request, ArmRequest::Poll(_));
            let poll = calls(&later).iter().find(is_poll).map(|call| call.id).expect("a poll");
            output = fixture.answer(poll, ArmAnswer::Operation(OperationState::Succeeded));
        }
        let Outcome::Written { record, .. } = outcome(&output, attempt) else { panic!("{output:?}") };
        assert_eq!(record.correlation_id.as_deref(), Some("c-1"));
        assert_eq!(record.added.count, 1);
    }
}
