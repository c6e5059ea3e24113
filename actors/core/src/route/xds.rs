//! Receivers of the outputs of the xDS source machine.

use super::Delivery;
use model::sample::Metric;
use pools::directory;
use reporting::snapshot;
use sources::xds_source;

/// Routes an output of the xDS source: calls go to the driver, the state of a source to the Directory.
pub(super) fn from_xds_source(output: xds_source::Out, deliver: &mut impl FnMut(Delivery)) {
    match output {
        xds_source::Out::Call(call) => deliver(Delivery::Xds(call)),
        xds_source::Out::Fact(name, fact) => {
            deliver(Delivery::Directory(directory::In::Source(name, fact)));
        }
        xds_source::Out::View(view) => deliver(Delivery::Snapshot(snapshot::In::Xds(view))),
        xds_source::Out::Metric(sample) => deliver(Delivery::Metrics(Metric::Xds(sample))),
    }
}
