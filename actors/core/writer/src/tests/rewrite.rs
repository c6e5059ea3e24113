//! Tests of a pool that is written although it is in sync, because its provisioning state stays `Failed`.

use super::*;

/// Returns the PUT of a pool in sync, and its attempt.
fn rewritten(fixture: &mut Fixture, web: &PoolId) -> (AttemptId, CallId, Edit) {
    let attempt = take(&fixture.due(web, due(fixture.now, MembershipUrgency::Remove)));
    let taken = MembershipWrite { rewrites: true, ..taken_level(web, &[1]) };
    let read = get(&fixture.step(In::Taken(web.clone(), attempt, Some(taken))), web);
    let facts = PoolFacts { provisioning: Provisioning::Failed, ..pool_with(web, &[1]) };
    let (call, edit, tag) = put(&fixture.answer(read, read_of(facts, "W/1")), web);
    assert_eq!(tag, Some(Etag::new("W/1")));
    (attempt, call, edit)
}

#[test]
fn a_pool_in_sync_is_written_as_it_is() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, call, edit) = rewritten(&mut fixture, &web);
    assert!(edit.is_empty());
    let output = fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    let Outcome::Written { members, added, removed, .. } = outcome(&output, attempt) else {
        panic!("{output:?}")
    };
    assert_eq!((members.len(), added.len(), removed.len()), (1, 0, 0));
}

#[test]
fn a_put_without_an_answer_is_not_repeated() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, call, _) = rewritten(&mut fixture, &web);
    fixture.fail(call, failed(503, "ServiceUnavailable", RetryAfter::Absent));
    for millis in (1_000..60_000).step_by(500) {
        let mut output = fixture.until(millis);
        while !output.is_empty() {
            let mut next = Vec::new();
            for one in output {
                if let Out::Take(pool, id) = &one {
                    let taken = MembershipWrite { rewrites: true, ..taken_level(&web, &[1]) };
                    next.extend(fixture.step(In::Taken(pool.clone(), *id, Some(taken))));
                } else if let Out::Call(ArmCall { id, request: ArmRequest::GetPool(_) }) = &one {
                    next.extend(fixture.answer(*id, read_of(pool_with(&web, &[1]), "W/2")));
                } else if let Out::Finished(_, id, Outcome::Written { .. }) = &one {
                    assert_eq!(*id, attempt);
                    return;
                } else {
                    panic!("{one:?}");
                }
            }
            output = next;
        }
    }
    panic!("it does not end");
}
