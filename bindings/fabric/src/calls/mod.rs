//! Exports to C, in libfabric's tables, all functions but those of queues, counters, memory and passive endpoints.

mod atomic;
mod domain;
mod endpoint;
mod messages;
mod provider;
mod rma;
mod shared_receives;
mod tagged;

pub use provider::fi_prov_ini;
