//! The functions that C calls, in libfabric's tables, except those of queues, counters, memory and passive endpoints.

mod atomic;
mod domain;
mod endpoint;
mod messages;
mod provider;
mod rma;
mod shared_receives;
mod tagged;

pub use provider::fi_prov_ini;
