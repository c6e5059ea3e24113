//! The listeners of the real binary, as an operator and a monitoring system see them, and the documents that describe
//! them: health, metrics, the admin API, and what becomes of objects that are wrong.

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
