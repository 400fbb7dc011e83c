//! Carries buffers and files over TLS 1.3: rustls over TCP sockets, tuned as a good user would.
//!
//! [`mod@sender`] and [`mod@receiver`] are its two ends.

mod receiver;
mod sender;

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;

use self::receiver::Receiver;
use self::sender::Sender;
use super::contract::{Contender, Listener, Part};
use super::stream;
use super::tcp;
use crate::job::{Job, Work};
use crate::measured::Measured;

/// TLS over the kernel's TCP.
#[derive(Debug)]
pub(super) struct Tls;

impl Contender for Tls {
    fn able(&self, job: &Job) -> Result<(), String> {
        match job.work {
            Work::Laps(_) | Work::File(_) => Ok(()),
            _ => Err("TLS carries only a buffer or a file, in one direction".into()),
        }
    }

    fn listen(&self, bind: IpAddr, job: &Job) -> Result<Box<dyn Listener>> {
        Ok(Box::new(Listening(tcp::Listening::bind(bind, None, job)?)))
    }

    fn initiate(&self, to: SocketAddr, part: &mut Part<'_>) -> Result<Vec<Measured>> {
        let job = part.job;
        stream::initiate(part, || Sender::open(tcp::connect(to, None, job)?))
    }
}

#[derive(Debug)]
struct Listening(tcp::Listening);

impl Listener for Listening {
    fn port(&self) -> Result<u16> {
        self.0.port()
    }

    fn respond(self: Box<Self>, part: &mut Part<'_>) -> Result<Vec<Measured>> {
        let job = part.job;
        stream::respond(part, || Receiver::accept(self.0.accept(job)?))
    }
}
