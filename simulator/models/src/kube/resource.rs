//! The kinds of objects that the model serves, and the differences between them in the real server's registry.
//!
//! This module has only facts; `store`, `reads` and `writes` store, read and write objects.

/// A kind of object that the model serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// `v1` Services.
    Services,
    /// `v1` Nodes (cluster-scoped).
    Nodes,
    /// `v1` Events.
    Events,
    /// `v1` Namespaces (cluster-scoped).
    Namespaces,
    /// `v1` ConfigMaps.
    ConfigMaps,
    /// `v1` Secrets.
    Secrets,
    /// `discovery.k8s.io/v1` EndpointSlices.
    EndpointSlices,
    /// `coordination.k8s.io/v1` Leases.
    Leases,
    /// `events.k8s.io/v1` Events: the objects of [`Resource::Events`] in the form of that group.
    EventsV1,
}

/// Behaviour of the real server's registry for one kind.
#[derive(Debug)]
pub(super) struct Facts {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    /// True if a PUT without resourceVersion replaces the object; otherwise it is refused with 422.
    pub unconditional_update: bool,
    /// True if a PUT of a missing object creates it.
    pub create_on_update: bool,
    /// True if the kind has `/status`, and ignores `status` on the main path.
    pub has_status: bool,
    /// True if the kind counts `metadata.generation`.
    pub counts_generation: bool,
    /// True if DELETE answers the object instead of a Status.
    pub returns_deleted: bool,
    /// Field selectors besides `metadata.name` and `metadata.namespace`, as dotted paths.
    pub selectable: &'static [&'static str],
    /// Fields of a bookmark's otherwise empty object besides kind, apiVersion and metadata.
    pub bookmark_rest: &'static str,
}

const PLAIN: Facts = Facts {
    group: "",
    version: "v1",
    plural: "",
    singular: "",
    kind: "",
    namespaced: true,
    unconditional_update: true,
    create_on_update: false,
    has_status: false,
    counts_generation: false,
    returns_deleted: false,
    selectable: &[],
    bookmark_rest: "",
};

const SERVICES: Facts = Facts {
    plural: "services",
    singular: "service",
    kind: "Service",
    create_on_update: true,
    has_status: true,
    returns_deleted: true,
    selectable: &["spec.clusterIP", "spec.type"],
    bookmark_rest: r#","spec":{},"status":{"loadBalancer":{}}"#,
    ..PLAIN
};
const NODES: Facts = Facts {
    plural: "nodes",
    singular: "node",
    kind: "Node",
    namespaced: false,
    has_status: true,
    selectable: &["spec.unschedulable"],
    bookmark_rest: concat!(
        r#","spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"machineID":"","#,
        r#""systemUUID":"","bootID":"","kernelVersion":"","osImage":"","containerRuntimeVersion":"","#,
        r#""kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"","architecture":""}}"#
    ),
    ..PLAIN
};
const EVENTS: Facts = Facts {
    plural: "events",
    singular: "event",
    kind: "Event",
    create_on_update: true,
    selectable: &[
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ],
    bookmark_rest: concat!(
        r#","involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,"#,
        r#""reportingComponent":"","reportingInstance":"""#
    ),
    ..PLAIN
};
const NAMESPACES: Facts = Facts {
    plural: "namespaces",
    singular: "namespace",
    kind: "Namespace",
    namespaced: false,
    has_status: true,
    selectable: &["status.phase"],
    bookmark_rest: r#","spec":{},"status":{}"#,
    ..PLAIN
};
const CONFIG_MAPS: Facts = Facts { plural: "configmaps", singular: "configmap", kind: "ConfigMap", ..PLAIN };
const SECRETS: Facts =
    Facts { plural: "secrets", singular: "secret", kind: "Secret", selectable: &["type"], ..PLAIN };
const ENDPOINT_SLICES: Facts = Facts {
    group: "discovery.k8s.io",
    plural: "endpointslices",
    singular: "endpointslice",
    kind: "EndpointSlice",
    counts_generation: true,
    bookmark_rest: r#","addressType":"","endpoints":null,"ports":null"#,
    ..PLAIN
};
const LEASES: Facts = Facts {
    group: "coordination.k8s.io",
    plural: "leases",
    singular: "lease",
    kind: "Lease",
    unconditional_update: false,
    create_on_update: true,
    bookmark_rest: r#","spec":{}"#,
    ..PLAIN
};
const EVENTS_V1: Facts = Facts {
    group: "events.k8s.io",
    plural: "events",
    singular: "event",
    kind: "Event",
    create_on_update: true,
    selectable: &[
        "reason",
        "regarding.kind",
        "regarding.name",
        "regarding.namespace",
        "regarding.uid",
        "type",
    ],
    bookmark_rest: concat!(
        r#","eventTime":null,"regarding":{},"deprecatedSource":{},"deprecatedFirstTimestamp":null,"#,
        r#""deprecatedLastTimestamp":null"#
    ),
    ..PLAIN
};

impl Resource {
    /// Every kind, in the order of its table.
    pub const ALL: [Resource; 9] = [
        Resource::Services,
        Resource::Nodes,
        Resource::Events,
        Resource::Namespaces,
        Resource::ConfigMaps,
        Resource::Secrets,
        Resource::EndpointSlices,
        Resource::Leases,
        Resource::EventsV1,
    ];

    pub(super) fn facts(self) -> &'static Facts {
        match self {
            Resource::Services => &SERVICES,
            Resource::Nodes => &NODES,
            Resource::Events => &EVENTS,
            Resource::Namespaces => &NAMESPACES,
            Resource::ConfigMaps => &CONFIG_MAPS,
            Resource::Secrets => &SECRETS,
            Resource::EndpointSlices => &ENDPOINT_SLICES,
            Resource::Leases => &LEASES,
            Resource::EventsV1 => &EVENTS_V1,
        }
    }

    /// Returns the kind under which its objects are stored: both groups of events share one store.
    pub(super) fn stored_as(self) -> Resource {
        if self == Resource::EventsV1 { Resource::Events } else { self }
    }

    /// Returns whether its objects are stored in the form of this kind.
    pub(super) fn is_stored_as_itself(self) -> bool {
        self.stored_as() == self
    }

    /// Returns the index of the table in which its objects are stored.
    pub(super) fn index(self) -> usize {
        self.stored_as() as usize
    }

    /// Returns the kind behind `/api(s)/<group>/<version>/<plural>`, if the model serves it.
    pub fn at_path(group: &str, version: &str, plural: &str) -> Option<Resource> {
        Resource::ALL.into_iter().find(|resource| {
            let facts = resource.facts();
            facts.group == group && facts.version == version && facts.plural == plural
        })
    }

    /// Returns the kind of an object with this `apiVersion` and `kind`, if the model serves it.
    pub fn of_object(api_version: &str, kind: &str) -> Option<Resource> {
        Resource::ALL.into_iter().find(|resource| {
            let facts = resource.facts();
            facts.kind == kind && facts.api_version() == api_version
        })
    }
}

impl Facts {
    /// Returns `v1` or `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns `services` or `leases.coordination.k8s.io`, as in error messages.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Returns `Service` or `Lease.coordination.k8s.io`, as in validation messages.
    pub fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// Returns the first bytes of every serialised object of this kind, which list items omit.
    pub fn head(&self) -> String {
        format!(r#"{{"kind":"{}","apiVersion":"{}","#, self.kind, self.api_version())
    }
}
