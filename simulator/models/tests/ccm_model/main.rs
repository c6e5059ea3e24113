//! The model of the cloud-controller-manager behaves like upstream (docs/design/surface.md, Z1).

mod azure;
mod lifecycle;
mod lock;
mod properties;
mod story;
mod support;
mod updater;
