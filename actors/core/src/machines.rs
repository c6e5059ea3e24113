//! The table of machines and ports. The messages of `route`, the address book, the names of mailboxes and the wiring
//! take their lists from it (docs/design/model-and-mechanisms.md, A1).
//!
//! The watchers and the pools, of which there are several, are not in the table: the lists name them by hand.

/// Calls a macro with the table.
///
/// A row for each machine that runs once: its name among the messages; the machine, in the module of its `In` and
/// `Out`; its field in the address book, which is the name of its mailbox; the function that extracts its input from a
/// delivery. A row for each port: its name among the addresses; its delivery; its field in the address book.
#[macro_export]
macro_rules! machines {
    ($list:ident) => {
        $list! {
            machines {
                /// The Informer.
                Informer: informer::Informer, informer, for_informer;
                /// Discovery.
                Discovery: discovery::Discovery, discovery, for_discovery;
                /// The Directory.
                Directory: directory::Directory, directory, for_directory;
                /// The writer.
                Writer: writer::Writer, writer, for_writer;
                /// The AdminState machine.
                AdminState: nodes::AdminState, admin_state, for_admin_state;
                /// The Leader.
                Leader: leader::Leader, leader, for_leader;
                /// The Pauses machine.
                Pauses: pauses::Pauses, pauses, for_pauses;
                /// The event emitter.
                Events: events::Emitter, events, for_events;
                /// The snapshot machine.
                Snapshot: snapshot::SnapshotPublisher, snapshot, for_snapshot;
                /// The xDS source machine.
                XdsSource: xds_source::XdsSource, xds_source, for_xds_source;
            }
            ports {
                /// The port to xDS control planes.
                XdsPort: Xds(DriverCall), xds_port;
                /// The port to ARM.
                ArmPort: Arm(ArmMessage), arm_port;
                /// The port to Kubernetes.
                KubernetesPort: Kubernetes(KubernetesCall), kubernetes_port;
                /// The metrics recorder.
                Metrics: Metrics(Metric), metrics;
                /// The host, which publishes snapshots and ends the process.
                Host: Host(HostMessage), host;
            }
        }
    };
}
