//! Emulates links and network namespaces in real time, for tests, benchmarks and the lab.
//!
//! | module | what it gives |
//! |---|---|
//! | [`udp`] | a relay on loopback that sends real datagrams through two links |
//! | [`lab`] | namespaces around a hub that carries any traffic through such links |
//! | [`forge`] | frames forged and overheard, to attack programs in such namespaces |
//! | [`netns`] | network namespaces joined by veth |
//!
//! The links are those of the crate `netsim`, which the tests drive in virtual time; here they run in real time.
//!
//! All randomness comes from a seed, so a failing run can be repeated.

#![forbid(unsafe_code)]

mod checksum;
pub mod forge;
pub mod lab;
pub mod netns;
pub mod udp;
mod worker;
