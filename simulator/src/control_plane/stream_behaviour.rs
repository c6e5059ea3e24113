//! In what manner streams are dealt with, and how they end.

use tonic::Status;

/// In what manner the control plane deals with streams.
#[derive(Clone, Debug, Default)]
pub enum StreamBehaviour {
    /// It answers as a server should.
    #[default]
    Answers,
    /// It takes streams and requests and sends nothing; what it owes is sent when it answers again.
    Silent,
    /// It ends each stream so at its first request, before any response. Streams that have had a response go on.
    EndsStreams(Ending),
    /// It refuses each new stream with this status, before any request is read. Open streams go on.
    Refuses(Status),
}

/// How a stream ends.
#[derive(Clone, Debug)]
pub enum Ending {
    /// With the status OK.
    Cleanly,
    /// With this status.
    Status(Status),
    /// Without a word: all connections are cut.
    Connections,
}
