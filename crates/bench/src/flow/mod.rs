//! Flows: what a protocol carries from one host to another in a given time.
//!
//! `bulk` moves a number of bytes over a good link as fast as it can. Here the
//! link is emulated and bad, some protocol may nearly stop, and several may
//! share the link: so a flow has a time, and counts the bytes that arrived in
//! it. Every word of every piece that arrived whole is checked.
//!
//! | module | what it does |
//! |---|---|
//! | `job` | what a flow is, and what is counted of it |
//! | `contender` | the protocols and their settings |
//! | `zl`, `tcp` | the two ends of a flow |
//! | `kernel` | what the kernel's TCP counts |
//! | `progress` | bytes over time |
//! | `stage` | the emulated network, and the processes in it |

pub(crate) mod contender;
pub(crate) mod job;
mod kernel;
mod progress;
pub(crate) mod stage;
mod tcp;
mod zl;

use std::net::{IpAddr, SocketAddr};
use std::sync::Barrier;
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Result, bail};

use contender::Carrier;
use job::{Arrived, FlowJob, Sent};

/// A receiver waiting for its senders.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(std::net::TcpListener),
    Zerolane(Box<zerolane::Endpoint>),
}

impl Listener {
    /// Listens on any free port of `address`.
    pub(crate) fn bind(address: IpAddr, job: &FlowJob) -> Result<Listener> {
        Ok(match job.contender.carrier() {
            Carrier::Tcp { congestion } => Listener::Tcp(tcp::listen(address, congestion)?),
            Carrier::Zerolane { profile } => {
                Listener::Zerolane(Box::new(zl::listen(address, profile, job)?))
            }
        })
    }

    /// The port the senders are to connect to.
    pub(crate) fn port(&self) -> Result<u16> {
        Ok(match self {
            Listener::Tcp(listener) => listener.local_addr()?.port(),
            Listener::Zerolane(endpoint) => endpoint.local_addr().port(),
        })
    }

    /// Receives all flows of the job, from when the last of them has connected.
    pub(crate) fn receive(self, job: &FlowJob) -> Result<Vec<Arrived>> {
        match self {
            Listener::Tcp(listener) => tcp::receive(&listener, job),
            Listener::Zerolane(endpoint) => zl::receive(*endpoint, job),
        }
    }
}

/// Receives from all connections, each in a thread of its own; they start
/// together.
fn at_once<C: Send>(
    connections: Vec<C>,
    job: &FlowJob,
    receive: impl Fn(C, &FlowJob, &Barrier) -> Result<Arrived> + Sync,
) -> Result<Vec<Arrived>> {
    let ready = Barrier::new(connections.len());
    let (ready, receive) = (&ready, &receive);
    thread::scope(|scope| {
        let flows: Vec<_> = connections
            .into_iter()
            .map(|connection| scope.spawn(move || receive(connection, job, ready)))
            .collect();
        let join = |flow: ScopedJoinHandle<'_, Result<Arrived>>| {
            flow.join()
                .unwrap_or_else(|_| bail!("a flow's thread panicked"))
        };
        flows.into_iter().map(join).collect()
    })
}

/// Sends one flow until its receiver ends it.
pub(crate) fn send(to: SocketAddr, job: &FlowJob) -> Result<Sent> {
    match job.contender.carrier() {
        Carrier::Tcp { congestion } => tcp::send(to, congestion, job),
        Carrier::Zerolane { profile } => zl::send(to, profile, job),
    }
}
