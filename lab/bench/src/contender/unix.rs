//! Carries buffers and files over UNIX sockets, which two processes of one host can use without a network.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail};
use socket2::{Domain, SockAddr, Socket, Type};
use zerolane_cli::lane::LaneName;

use super::contract::{Contender, Listener, Part};
use super::socket;
use crate::job::source_sink::Source;
use crate::job::{Job, Work};
use crate::limits::FLOWS_MAX;
use crate::measured::Measured;

/// A stream socket of the UNIX domain.
#[derive(Debug)]
pub(super) struct Unix;

impl Contender for Unix {
    fn able(&self, job: &Job) -> Result<(), String> {
        match &job.work {
            _ if !matches!(job.lane, LaneName::Shm | LaneName::Auto) => {
                Err("both ends must be in one network namespace: --lane shm".into())
            }
            Work::SourceSink(it) if matches!(it.source, Source::Sendfile | Source::Splice) => {
                Err("it uses send and recv".into())
            }
            _ => Ok(()),
        }
    }

    fn listen(&self, _: IpAddr, job: &Job) -> Result<Box<dyn Listener>> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket::bound(&socket, job)?;
        for port in 1..=u16::MAX {
            if socket.bind(&name(port)?).is_ok() {
                socket.listen(FLOWS_MAX as i32)?;
                return Ok(Box::new(Listening { socket, port }));
            }
        }
        bail!("all names of UNIX sockets are taken")
    }

    fn initiate(&self, to: SocketAddr, part: &mut Part<'_>) -> Result<Vec<Measured>> {
        let job = part.job;
        socket::initiate(part, || {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            socket::bound(&socket, job)?;
            let connected = socket.connect(&name(to.port())?);
            connected.context("cannot connect to the receiver")?;
            socket::introduce(socket, job)
        })
    }
}

/// The abstract name that stands for this port: nothing of it is left when its process has ended.
fn name(port: u16) -> Result<SockAddr> {
    Ok(SockAddr::unix(format!("\0zerolane-bench-{port}"))?)
}

/// A name at which the initiators connect.
#[derive(Debug)]
struct Listening {
    socket: Socket,
    port: u16,
}

impl Listener for Listening {
    fn port(&self) -> Result<u16> {
        Ok(self.port)
    }

    fn respond(self: Box<Self>, part: &mut Part<'_>) -> Result<Vec<Measured>> {
        socket::respond(part, &self.socket)
    }
}
