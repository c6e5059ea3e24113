//! Receivers of operator requests (docs/design/surface.md, H3).

use super::Delivery;
use coordination::pauses;
use model::operator_request::{OperatorAction, Request, Scope};
use pools::{directory, discovery};

/// Addresses an operator request to the machine that decides about it.
pub(super) fn to_machine(Request { id, wanted }: Request) -> Delivery {
    match wanted {
        OperatorAction::Attempt(pool) => Delivery::Writer(writer::In::Attempt(id, pool)),
        OperatorAction::Release(scope) => match scope {
            Scope::Node(_) | Scope::Everything => Delivery::AdminState(nodes::In::Release(id, scope)),
            Scope::Pool(_) | Scope::Service(_) => {
                Delivery::Directory(directory::In::Release(id, scope, Vec::new()))
            }
        },
        OperatorAction::OpenGates(class) => Delivery::Writer(writer::In::OpenGates(id, class)),
        OperatorAction::Compare(lb) => Delivery::Discovery(discovery::In::Compare(id, lb)),
        OperatorAction::Pause { scope, by, reason } => {
            Delivery::Pauses(pauses::In::Pause { id, scope, by, reason })
        }
        OperatorAction::Resume(scope) => Delivery::Pauses(pauses::In::Resume { id, scope }),
    }
}
