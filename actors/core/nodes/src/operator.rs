//! Nodes that the operator releases, regardless of other Down nodes (docs/design/nodes.md, N5; H3). Also handles the
//! inputs of a machine whose role is silent.

use super::nodes::Release;
use super::{AdminState, In, Out};
use model::ids::NodeName;
use model::operator_request::{Answer, Done, Refusal, ReleaseRefusal, RequestId, Scope};

impl AdminState {
    /// Releases one node, or everything. For everything, the Directory gets the released nodes and answers.
    pub(super) fn on_release(&mut self, id: RequestId, scope: &Scope, out: &mut Vec<Out>) {
        let refused = self.release_refusal();
        self.changed = true;
        match scope {
            Scope::Everything => {
                let nodes = if refused.is_none() { self.nodes.release_all() } else { Vec::new() };
                out.push(Out::Release(id, nodes));
            }
            Scope::Node(name) => {
                let answer = refused.map_or_else(|| self.release_node(name), Answer::Refused);
                out.push(Out::Answer(id, answer));
            }
            // The Directory decides about these.
            Scope::Pool(_) | Scope::Service(_) => {
                out.push(Out::Answer(id, Answer::Refused(Refusal::Unknown)));
            }
        }
    }

    /// Returns the reason for which no node can be released here: this process sets no node Down, so that another one
    /// would still hold it.
    fn release_refusal(&self) -> Option<Refusal> {
        if !self.records.writes() {
            return Some(Refusal::DryRun);
        }
        if self.acts() {
            return None;
        }
        let stopped_by = self.policy.as_ref().and_then(|policy| policy.stopped_by());
        Some(stopped_by.map_or(Refusal::NotLeading, Refusal::Paused))
    }

    fn release_node(&mut self, name: &NodeName) -> Answer {
        match self.nodes.release(name) {
            Release::Released => {
                Answer::Done(Done::Released { pools: Vec::new(), nodes: vec![name.clone()] })
            }
            Release::NotHeld => Answer::Refused(Refusal::NothingReleased(ReleaseRefusal::NodeNotHeld)),
            Release::Unknown => Answer::Refused(Refusal::Unknown),
        }
    }

    /// Answers requests of a silent machine, which does nothing else.
    pub(super) fn step_silently(&mut self, input: In, out: &mut Vec<Out>) {
        match input {
            In::Opened(epoch) => out.push(Out::Opened(epoch)),
            In::Release(id, Scope::Everything) => out.push(Out::Release(id, Vec::new())),
            In::Release(id, Scope::Node(_) | Scope::Pool(_) | Scope::Service(_)) => {
                let refusal = Refusal::NothingReleased(ReleaseRefusal::NodeNotHeld);
                out.push(Out::Answer(id, Answer::Refused(refusal)));
            }
            In::Node(..)
            | In::Confirmed(_)
            | In::Lb(_)
            | In::AdminStates(..)
            | In::Leadership(_)
            | In::OperatorPolicy { .. }
            | In::ConfigMap(..)
            | In::Preemption(_)
            | In::Tainted(..)
            | In::SourceAdminStates(..)
            | In::Reporting(_) => {}
        }
    }
}
