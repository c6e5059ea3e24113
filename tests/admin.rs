//! The listeners of the real binary, as an operator and a monitoring system see them, and the documents that describe
//! them: health, metrics, the admin API, and what becomes of objects that are wrong.

mod api;
mod documents;
mod health;
mod leadership;
mod log;
mod metrics;
mod pages;
mod people;
pub mod stage;
mod starts;
mod tls;
mod web;
mod wrong;
