//! The metrics of xDS clients by gRFC A78, with the cache states of A88, and their samples (E2). Also the metrics of
//! Services by the same states (X5).

use std::sync::Arc;

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use model::xds::cache::CacheState;
use model::xds::facts::ResourceKind;
use model::xds::stream::{ServerId, XdsMetric};

use super::{
    SERVICE_RESOURCES, XDS_CONNECTED, XDS_INVALID, XDS_NACKS, XDS_RESOURCES, XDS_SERVER_FAILURES, XDS_VALID,
    as_f64, flag,
};

/// Placeholder for the target of a channel, which this client does not have (A78).
const TARGET: &str = "#backend-pools";
/// Placeholder for the authority of names without one (A78).
const NO_AUTHORITY: &str = "#old";

/// Describes the metrics.
pub(super) fn describe() {
    describe_gauge!(XDS_CONNECTED, "Whether a stream to an xDS server works: 1 or 0.");
    describe_counter!(XDS_SERVER_FAILURES, Unit::Count, "Times that an xDS server stopped answering.");
    describe_counter!(XDS_VALID, Unit::Count, "Valid resources that xDS servers have sent, changed or not.");
    describe_counter!(
        XDS_INVALID,
        Unit::Count,
        "Invalid resources that xDS servers have sent, and errors sent instead of resources."
    );
    describe_counter!(XDS_NACKS, Unit::Count, "Responses of xDS servers that were rejected.");
    describe_gauge!(
        SERVICE_RESOURCES,
        Unit::Count,
        "Managed Services, by the state of their EndpointSlices."
    );
    describe_gauge!(XDS_RESOURCES, Unit::Count, "Watched xDS resources, by the state of the cache.");
}

/// Creates the series of all configured servers, at zero. The series for the connection starts with the first stream to
/// the server (A78).
pub(super) fn create_series(servers: &[Arc<str>]) {
    for state in CacheState::ALL {
        service_resources(state, 0);
    }
    for (index, server) in servers.iter().enumerate() {
        counter!(XDS_SERVER_FAILURES, "grpc_target" => TARGET, "grpc_xds_server" => server.to_string())
            .absolute(0);
        for kind in ResourceKind::ALL {
            let id = ServerId(index);
            record(servers, XdsMetric::Updates { server: id, kind, valid: 0, invalid: 0 });
            nacks(servers, id, kind, 0);
            for state in CacheState::ALL {
                record(servers, XdsMetric::Resources { kind, state, count: 0 });
            }
        }
    }
}

/// Records a sample; servers are named by their targets.
pub(super) fn record(servers: &[Arc<str>], sample: XdsMetric) {
    match sample {
        XdsMetric::Connected { server, connected } => {
            let server = name(servers, server);
            // A server that is no longer in use has no stream that could work.
            gauge!(XDS_CONNECTED, "grpc_target" => TARGET, "grpc_xds_server" => server)
                .set(flag(connected == Some(true)));
        }
        XdsMetric::ServerFailure(server) => {
            let server = name(servers, server);
            counter!(XDS_SERVER_FAILURES, "grpc_target" => TARGET, "grpc_xds_server" => server).increment(1);
        }
        XdsMetric::Updates { server, kind, valid, invalid } => {
            for (metric, count) in [(XDS_VALID, valid), (XDS_INVALID, invalid)] {
                counter!(
                    metric,
                    "grpc_target" => TARGET,
                    "grpc_xds_server" => name(servers, server),
                    "grpc_xds_resource_type" => kind.resource_type()
                )
                .increment(count);
            }
        }
        XdsMetric::Nack { server, kind } => nacks(servers, server, kind, 1),
        XdsMetric::Resources { kind, state, count } => {
            gauge!(
                XDS_RESOURCES,
                "grpc_target" => TARGET,
                "grpc_xds_authority" => NO_AUTHORITY,
                "grpc_xds_cache_state" => state.as_str(),
                "grpc_xds_resource_type" => kind.resource_type()
            )
            .set(as_f64(count));
        }
    }
}

/// Sets the number of Services in a state.
pub(super) fn service_resources(state: CacheState, count: u64) {
    gauge!(SERVICE_RESOURCES, "cache_state" => state.as_str()).set(as_f64(count));
}

fn nacks(servers: &[Arc<str>], server: ServerId, kind: ResourceKind, more: u64) {
    counter!(
        XDS_NACKS,
        "grpc_xds_server" => name(servers, server),
        "grpc_xds_resource_type" => kind.resource_type()
    )
    .increment(more);
}

/// Returns the configured target of a server.
fn name(servers: &[Arc<str>], server: ServerId) -> String {
    servers.get(server.0).map(ToString::to_string).unwrap_or_default()
}
