//! Decodes a `ClusterLoadAssignment` endpoint by endpoint, within limits.
//!
//! An empty message takes two bytes on the wire and about a hundred in memory, so everything that repeats is counted
//! before it is decoded.

use model::xds::facts::{AddressFacts, AssignmentFacts, Body, EndpointFacts, Locality, LocalityFacts};
use prost::Message;

use super::messages::{
    self, Address, ClusterLoadAssignment, HostIdentifier, LbEndpoint, LocalityLbEndpoints, PortSpecifier,
    SpecificAddress, each,
};
use super::{malformed, reason};

/// Maximum number of localities of one assignment.
pub(crate) const MAX_LOCALITIES: usize = 10_000;

/// Maximum number of endpoints of one assignment.
pub(crate) const MAX_ENDPOINTS: usize = 100_000;

/// Maximum number of localities, endpoints and additional addresses of a whole response.
pub(crate) const MAX_IN_RESPONSE: usize = 400_000;

/// Amount of a response that has been read.
#[derive(Default)]
pub(super) struct SizeBudget {
    /// Localities, endpoints and additional addresses of the assignments that were read.
    used: usize,
}

/// Reasons why an assignment is not read.
enum Unread {
    /// The assignment cannot be decoded.
    Undecodable(String),
    /// The assignment exceeds a limit.
    TooLarge(String),
}

impl From<prost::DecodeError> for Unread {
    fn from(error: prost::DecodeError) -> Unread {
        Unread::Undecodable(reason(&error))
    }
}

impl From<messages::Malformed> for Unread {
    fn from(error: messages::Malformed) -> Unread {
        Unread::Undecodable(malformed(error))
    }
}

/// Reads an assignment. An assignment that exceeds a limit becomes [`Body::TooLarge`], and does not count.
pub(super) fn read(bytes: &[u8], room: &mut SizeBudget) -> Result<Body, String> {
    let ClusterLoadAssignment { cluster_name } =
        ClusterLoadAssignment::decode(bytes).map_err(|error| reason(&error))?;
    let mut reading = PartialAssignment { endpoints: 0, used: room.used };
    match reading.localities(bytes) {
        Ok(localities) => {
            room.used = reading.used;
            Ok(Body::Endpoints(AssignmentFacts { cluster_name, localities }))
        }
        Err(Unread::Undecodable(reason)) => Err(reason),
        Err(Unread::TooLarge(fault)) => Ok(Body::TooLarge { name: cluster_name, fault }),
    }
}

/// An assignment that is being read.
struct PartialAssignment {
    /// The endpoints of the assignment so far.
    endpoints: usize,
    /// Amount of the response that has been read, this assignment included.
    used: usize,
}

impl PartialAssignment {
    /// Counts these elements before they are decoded.
    fn take(&mut self, count: usize) -> Result<(), Unread> {
        self.used = self.used.saturating_add(count);
        if self.used > MAX_IN_RESPONSE {
            let fault = format!("make more than {MAX_IN_RESPONSE} in one response: send fewer");
            return Err(Unread::TooLarge(fault));
        }
        Ok(())
    }

    fn localities(&mut self, assignment: &[u8]) -> Result<Vec<LocalityFacts>, Unread> {
        let count = each(assignment, 2).count();
        if count > MAX_LOCALITIES {
            let fault = format!("are {count} localities, at most {MAX_LOCALITIES} are read: merge some");
            return Err(Unread::TooLarge(fault));
        }
        self.take(count)?;
        let mut localities = Vec::with_capacity(count);
        for locality in each(assignment, 2) {
            localities.push(self.locality(locality?)?);
        }
        Ok(localities)
    }

    fn locality(&mut self, bytes: &[u8]) -> Result<LocalityFacts, Unread> {
        let message = LocalityLbEndpoints::decode(bytes)?;
        let locality = message.locality.map(|locality| {
            let messages::Locality { region, zone, sub_zone } = locality;
            Locality { region, zone, sub_zone }
        });
        let (weight, priority) = (message.load_balancing_weight, message.priority);
        Ok(LocalityFacts { locality, weight, priority, endpoints: self.endpoints(bytes)? })
    }

    fn endpoints(&mut self, locality: &[u8]) -> Result<Vec<EndpointFacts>, Unread> {
        let count = each(locality, 2).count();
        self.endpoints = self.endpoints.saturating_add(count);
        if self.endpoints > MAX_ENDPOINTS {
            let fault = format!("are more than {MAX_ENDPOINTS}: split the cluster over several ones");
            return Err(Unread::TooLarge(fault));
        }
        self.take(count)?;
        let mut endpoints = Vec::with_capacity(count);
        for endpoint in each(locality, 2) {
            let endpoint = endpoint?;
            let additional = each(endpoint, 1).flatten().map(|endpoint| each(endpoint, 4).count());
            self.take(additional.sum())?;
            endpoints.push(endpoint_facts(LbEndpoint::decode(endpoint)?));
        }
        Ok(endpoints)
    }
}

/// Returns the facts about an endpoint. A named endpoint has its address in another resource, which is not supported.
fn endpoint_facts(message: LbEndpoint) -> EndpointFacts {
    let (address, additional) = match message.host_identifier {
        Some(HostIdentifier::Endpoint(endpoint)) => {
            let additional = endpoint.additional_addresses.into_iter();
            (address_facts(endpoint.address), additional.map(|more| address_facts(more.address)).collect())
        }
        Some(HostIdentifier::EndpointName(_)) | None => (AddressFacts::Missing, Vec::new()),
    };
    let weight = message.load_balancing_weight;
    EndpointFacts { address, additional, health: message.health_status, weight }
}

fn address_facts(address: Option<Address>) -> AddressFacts {
    match address.and_then(|address| address.address) {
        Some(SpecificAddress::SocketAddress(socket)) => {
            let port = match socket.port_specifier {
                Some(PortSpecifier::PortValue(number)) => Some(number),
                Some(PortSpecifier::NamedPort(_)) | None => None,
            };
            AddressFacts::Socket { address: socket.address, port, protocol: socket.protocol }
        }
        Some(SpecificAddress::Pipe(())) => AddressFacts::Pipe,
        Some(SpecificAddress::EnvoyInternalAddress(())) => AddressFacts::Internal,
        None => AddressFacts::Missing,
    }
}
