//! Events of control planes, by the seed: their resources change, they fail, cut streams and return.

use model::xds::facts::Code;

use super::content::Change;
use super::{Planes, Sendings, Server, StreamBehaviour};

impl Planes {
    /// Serves the first resources; in some worlds a server is missing at first.
    pub(super) fn begin(&mut self) {
        let changes = self.content.first();
        changes.iter().for_each(|change| self.carry_out(change));
        for server in &mut self.servers {
            if self.random.per_mille(250) {
                let behaviours = [
                    StreamBehaviour::Refuses,
                    StreamBehaviour::Hangs,
                    StreamBehaviour::Silent,
                    StreamBehaviour::EndsStreams,
                ];
                server.behaviour = behaviours[self.random.index(behaviours.len())];
            }
        }
    }

    /// Returns the time until the next event, in microseconds.
    pub fn pause(&mut self) -> u64 {
        if self.lively && self.random.per_mille(800) {
            self.random.between(50_000, 4_000_000)
        } else {
            self.random.between(3_000_000, 40_000_000)
        }
    }

    /// Makes one change; returns a description and the messages that follow.
    pub fn make_change(&mut self) -> (String, Sendings) {
        let index = self.random.index(self.servers.len());
        match self.random.below(100) {
            0..74 => {
                let change = self.content.make_change();
                self.carry_out(&change);
                (format!("{change:?}"), self.push())
            }
            74..80 => (format!("plane {index} cuts its streams"), self.cut(index)),
            80..84 => {
                let cut = self.cut(index);
                let server = &mut self.servers[index];
                if self.random.per_mille(500) {
                    (server.responses, server.behaviour) = (0, StreamBehaviour::Answers);
                    // A server that believes a client's version must use versions with the same meaning in each of
                    // its lives. Otherwise it would send nothing to clients with a version of another life.
                    if !server.trusts {
                        server.catalogue.forget_versions();
                    }
                }
                (format!("plane {index} restarts"), cut)
            }
            84..92 => {
                let behaviours = [
                    StreamBehaviour::Refuses,
                    StreamBehaviour::Hangs,
                    StreamBehaviour::Silent,
                    StreamBehaviour::EndsStreams,
                ];
                let behaviour = behaviours[self.random.index(behaviours.len())];
                self.servers[index].behaviour = behaviour;
                let cut = if self.random.per_mille(700) { self.cut(index) } else { Vec::new() };
                (format!("plane {index}: {behaviour:?}"), cut)
            }
            _ => {
                self.servers[index].behaviour = StreamBehaviour::Answers;
                (format!("plane {index} answers"), self.push())
            }
        }
    }

    /// Changes everything once.
    pub fn change_everything(&mut self) -> Sendings {
        let changes = self.content.change_everything();
        changes.iter().for_each(|change| self.carry_out(change));
        self.push()
    }

    /// Withdraws all resources and reports errors.
    pub fn take_back(&mut self) -> Sendings {
        let changes = self.content.take_back();
        changes.iter().for_each(|change| self.carry_out(change));
        self.push()
    }

    /// Makes the repairs that the operator would make.
    pub fn repair(&mut self) -> Sendings {
        let changes = self.content.repair();
        changes.iter().for_each(|change| self.carry_out(change));
        self.servers.iter_mut().for_each(|server| server.behaviour = StreamBehaviour::Answers);
        self.push()
    }

    fn cut(&mut self, index: usize) -> Sendings {
        let code = [Code::Ok, Code::Unavailable, Code::Internal][self.random.index(3)];
        self.servers.get_mut(index).map(|server| server.cut(code)).unwrap_or_default()
    }

    fn carry_out(&mut self, change: &Change) {
        self.servers.iter_mut().for_each(|server| server.carry_out(change));
    }
}

impl Server {
    fn carry_out(&mut self, change: &Change) {
        match change {
            Change::Set((kind, name), served) => {
                self.catalogue.set(*kind, vec![((*name).to_owned(), served.clone())]);
            }
            Change::Remove((kind, name)) => self.catalogue.remove(*kind, name),
            Change::Fail((kind, name), code) => self.catalogue.fail(*kind, (*name).to_owned(), *code),
            Change::ForgetError((kind, name)) => self.catalogue.forget_error(*kind, name),
        }
    }
}
