//! The listeners of the real binary, and the documents that describe them: health, metrics, the admin API, and the
//! handling of invalid objects.

mod api;
mod browser;
mod configuration;
mod connections;
mod documents;
mod events;
mod flood;
mod hanging;
mod health;
mod lanes;
mod leadership;
mod log;
mod metrics;
pub mod nodes;
mod openapi;
mod operators;
mod pages;
mod shutdown;
pub mod stage;
mod tls;
mod watches;
mod web;
mod wrong;
