//! The stages, in order. A stage begins when every goal of the one before is reached.

/// A stage of the migration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// The journal is stored.
    Journal,
    /// The load balancers are read, to find out how far an earlier process came.
    Inspect,
    /// Public addresses become static.
    StaticAddresses,
    /// The shared Lease is released for a short time.
    HandOver,
    /// The Basic load balancers are compared with the journal.
    Compare,
    /// Pools of interfaces are converted to pools of addresses.
    Convert,
    /// The models of scale sets are detached.
    DetachModels,
    /// The instances of scale sets are listed.
    ListInstances,
    /// Instances and network interfaces are detached.
    DetachNodes,
    /// The Basic load balancers are deleted.
    Delete,
    /// Private addresses are checked.
    CheckAddresses,
    /// Internal load balancers are created, and public addresses get the SKU Standard.
    BuildInternal,
    /// Public load balancers are created.
    BuildPublic,
    /// The models of scale sets are attached.
    AttachModels,
    /// The instances of scale sets are listed again.
    ListAgain,
    /// Instances and network interfaces are attached.
    AttachNodes,
    /// Taken addresses are tried again.
    Retake,
    /// Everything is read back.
    Prove,
    /// The journal is stored as done.
    Close,
}

impl Stage {
    /// Returns a description of the work of this stage.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Stage::Journal => "storing the journal",
            Stage::Inspect => "reading the load balancers",
            Stage::StaticAddresses => "making public addresses static",
            Stage::HandOver => "releasing the shared Lease for a moment",
            Stage::Compare => "comparing the load balancers with the plan",
            Stage::Convert => "changing pools to members by address",
            Stage::DetachModels => "detaching the models of scale sets",
            Stage::ListInstances | Stage::ListAgain => "listing instances",
            Stage::DetachNodes => "detaching nodes",
            Stage::Delete => "deleting Basic load balancers",
            Stage::CheckAddresses => "checking private addresses",
            Stage::BuildInternal => {
                "creating internal load balancers and raising public addresses to Standard"
            }
            Stage::BuildPublic => "creating public load balancers",
            Stage::AttachModels => "attaching the models of scale sets",
            Stage::AttachNodes => "attaching nodes",
            Stage::Retake => "trying addresses again that were in use",
            Stage::Prove => "reading everything back",
            Stage::Close => "closing the journal",
        }
    }

    /// Returns whether the stage needs the shared Lease.
    #[must_use]
    pub fn needs_lease(self) -> bool {
        match self {
            Stage::Journal | Stage::Inspect | Stage::HandOver | Stage::Close => false,
            Stage::StaticAddresses
            | Stage::Compare
            | Stage::Convert
            | Stage::DetachModels
            | Stage::ListInstances
            | Stage::DetachNodes
            | Stage::Delete
            | Stage::CheckAddresses
            | Stage::BuildInternal
            | Stage::BuildPublic
            | Stage::AttachModels
            | Stage::ListAgain
            | Stage::AttachNodes
            | Stage::Retake
            | Stage::Prove => true,
        }
    }

    /// Returns the stage after this one.
    pub(super) fn next(self) -> Option<Stage> {
        Some(match self {
            Stage::Journal => Stage::Inspect,
            Stage::Inspect => Stage::StaticAddresses,
            Stage::StaticAddresses => Stage::HandOver,
            Stage::HandOver => Stage::Compare,
            Stage::Compare | Stage::Convert => Stage::DetachModels,
            Stage::DetachModels => Stage::ListInstances,
            Stage::ListInstances => Stage::DetachNodes,
            Stage::DetachNodes => Stage::Delete,
            Stage::Delete => Stage::CheckAddresses,
            Stage::CheckAddresses => Stage::BuildInternal,
            Stage::BuildInternal => Stage::BuildPublic,
            Stage::BuildPublic => Stage::AttachModels,
            Stage::AttachModels => Stage::ListAgain,
            Stage::ListAgain => Stage::AttachNodes,
            Stage::AttachNodes => Stage::Retake,
            Stage::Retake => Stage::Prove,
            Stage::Prove => Stage::Close,
            Stage::Close => return None,
        })
    }
}
