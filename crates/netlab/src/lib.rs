//! Emulated links and network namespaces for tests, benchmarks and the lab.
//!
//! | module | what it gives |
//! |---|---|
//! | [`udp`] | a relay on loopback that sends real datagrams through two links |
//! | [`lab`] | namespaces around a hub that carries any traffic through such links |
//! | [`forge`] | frames made up and overheard, to attack what runs in such namespaces |
//! | [`netns`] | network namespaces joined by veth |
//!
//! The links are those of the crate `netsim`, which the tests drive in virtual
//! time; here they run in real time.
//!
//! Everything random comes from a seed, so a failing run can be run again.

#![forbid(unsafe_code)]

mod checksum;
pub mod forge;
pub mod lab;
pub mod netns;
pub mod udp;
mod worker;
