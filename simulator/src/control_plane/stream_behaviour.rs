//! Behaviour and ends of streams.

use tonic::Status;

/// Behaviour of the control plane with streams.
#[derive(Clone, Debug, Default)]
pub enum StreamBehaviour {
    /// The server answers normally.
    #[default]
    Answers,
    /// The server accepts streams and requests and sends nothing; pending responses are sent when it answers again.
    Silent,
    /// The server ends each stream in this way at its first request, before any response. Streams that have had a
    /// response continue.
    EndsStreams(Ending),
    /// The server refuses each new stream with this status, before any request is read. Open streams continue.
    Refuses(Status),
}

/// End of a stream.
#[derive(Clone, Debug)]
pub enum Ending {
    /// With the status OK.
    Cleanly,
    /// With this status.
    Status(Status),
    /// Without a status: all connections are aborted.
    Connections,
}
