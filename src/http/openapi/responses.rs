//! The responses with problem documents, which paths share.

use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{ContentBuilder, HeaderBuilder, Ref, RefOr, Response, ResponseBuilder};

use super::super::enums;
use super::super::problem::{Problem, ProblemAsOf, ProblemOfLeader, ProblemUntil};
use super::schemas::Schemas;

/// Returns the reference to the response of reads with this status.
pub(super) fn of_reading(status: u16) -> Ref {
    Ref::from_response_name(match status {
        404 => "NotFoundAsOf",
        503 => "NoRoom",
        status => of_all(status),
    })
}

/// Returns the reference to the response of operator requests with this status.
pub(super) fn of_requests(status: u16) -> Ref {
    Ref::from_response_name(of_all(status))
}

fn of_all(status: u16) -> &'static str {
    match status {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "NotAllowed",
        408 => "RequestTimeout",
        409 => "Conflict",
        413 => "TooLarge",
        414 => "PathTooLong",
        421 => "NotThisHost",
        503 => "Unavailable",
        504 => "NoAnswer",
        other => panic!("no response of the document has the status {other}"),
    }
}

/// Returns all responses, by the names with which paths refer to them.
pub(super) fn responses(schemas: &mut Schemas) -> Vec<(String, RefOr<Response>)> {
    let problem = schemas.of::<Problem>();
    let plain = |name: &str, description: &str| named(name, of(description, problem.clone()));
    let any = |all: &[&Ref]| all.iter().fold(AnyOfBuilder::new(), |any, one| any.item((*one).clone()));
    let until = schemas.of::<ProblemUntil>();
    let retry = || {
        let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1));
        HeaderBuilder::new()
            .schema(Some(seconds))
            .description(Some("In seconds, if the condition ends automatically."))
    };
    let bearer = HeaderBuilder::new().schema(Some(enums::one_of(&["Bearer"], "")));
    let methods = HeaderBuilder::new()
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .description(Some("The methods that the path supports."));
    let unauthorized = of("No bearer token, or one that the API server does not know.", problem.clone())
        .header("WWW-Authenticate", bearer.build());
    let not_allowed =
        of("The path does not support this method.", problem.clone()).header("Allow", methods.build());
    let conflict = "The target is paused or must wait, another replica leads, there is nothing to release, or this is \
                    a dry run; the detail says what to do.";
    let conflict = of(conflict, any(&[&problem, &until, &schemas.of::<ProblemOfLeader>()]));
    let no_room = "16 event streams are open, 16 large responses wait for their clients, or the API server did not \
                   authenticate the caller.";
    let no_room = of(no_room, any(&[&problem, &until]));
    vec![
        plain(
            "BadRequest",
            "A parameter, a part of the path or a key of the body is wrong; the detail names it.",
        ),
        named("Unauthorized", unauthorized),
        plain(
            "Forbidden",
            "This user has no permission, and the detail names the path and the verb; or a browser sends the request for a \
             page of another site (Sec-Fetch-Site or Origin).",
        ),
        plain("NotFound", "It does not exist."),
        named("NotFoundAsOf", of("It does not exist in the snapshot.", schemas.of::<ProblemAsOf>())),
        named("NotAllowed", not_allowed),
        plain("RequestTimeout", "The body did not arrive within 5 s."),
        named("Conflict", conflict.header("Retry-After", retry().build())),
        plain("NotThisHost", "On loopback: the Host header does not name loopback."),
        plain("PathTooLong", "Where requests are authorized: the path is longer than 1024 bytes."),
        plain("TooLarge", "The body is larger than 8 KiB."),
        plain("Unavailable", "The API server did not authenticate the caller, or the result is unknown."),
        named("NoRoom", no_room.header("Retry-After", retry().build())),
        plain("NoAnswer", "There was no answer within 12 s."),
    ]
}

fn named(name: &str, response: ResponseBuilder) -> (String, RefOr<Response>) {
    (name.to_owned(), response.into())
}

/// Returns a response with a problem document of this schema.
fn of(description: &str, schema: impl Into<RefOr<Schema>>) -> ResponseBuilder {
    let content = ContentBuilder::new().schema(Some(schema)).build();
    ResponseBuilder::new().description(description).content("application/problem+json", content)
}
