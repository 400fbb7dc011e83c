//! Sends over the kernel's TCP without the sender's copy: by vmsplice and splice, or by sendfile from a file in memory.
//!
//! The receiver is that of [`super`]. The pages must not change while the kernel refers to them. An acknowledgement does not
//! end that: between two namespaces of one machine, and on loopback, the receiver's socket holds the same pages until the
//! receiving program has read them, and only that program can tell the sender. These contenders therefore send memory that
//! never changes, as a server of files does. That favours them: a program that refills its buffer has to wait for the
//! receiver's word, or needs more memory.

use std::fs::File;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use anyhow::{Result, bail, ensure};
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice, vmsplice};
use nix::sys::sendfile::sendfile64;
use nix::unistd::pipe2;

use super::super::contract::{Contender, Listener, Part};
use super::super::messages::insist;
use super::super::socket::Connection;
use super::super::source_sink::{filled_file, pattern};
use super::super::stream::{self, Stream};
use super::Listening;
use crate::job::operations::Wait;
use crate::job::source_sink::Source;
use crate::job::{Job, Work};
use crate::measured::Measured;

/// TCP that is lent the sender's pages.
#[derive(Debug)]
pub(crate) enum Lent {
    Splice,
    Sendfile,
}

impl Contender for Lent {
    fn able(&self, job: &Job) -> Result<(), String> {
        let lends = match self {
            Lent::Splice => Source::Splice,
            Lent::Sendfile => Source::Sendfile,
        };
        match &job.work {
            Work::Laps(_) => Ok(()),
            Work::SourceSink(it) if it.source == lends => Ok(()),
            _ => Err("it sends only one buffer with constant content".into()),
        }
    }

    fn listen(&self, bind: IpAddr, job: &Job) -> Result<Box<dyn Listener>> {
        Ok(Box::new(Listening::bind(bind, None, job)?))
    }

    fn initiate(&self, to: SocketAddr, part: &mut Part<'_>) -> Result<Vec<Measured>> {
        let job = part.job;
        let connect = || super::connect(to, None, job);
        match (self, &job.work) {
            (Lent::Splice, _) => stream::initiate(part, || Splice::over(connect()?)),
            (Lent::Sendfile, Work::Laps(laps)) => {
                let (file, buffer) = filled_file(&job.stamps(laps).pattern, laps.buffer)?;
                let open = || Ok(Sendfile::of(connect()?, file, laps.buffer));
                Ok(vec![stream::send_laps(part, buffer, laps, open)?.0])
            }
            (Lent::Sendfile, Work::SourceSink(it)) => {
                let bytes = it.laps().buffer;
                let (file, buffer) = filled_file(&pattern(it), bytes)?;
                let open = || Ok(Sendfile::of(connect()?, file, bytes));
                Ok(vec![stream::send_from_source(part, it, buffer, open)?.0])
            }
            _ => bail!("it sends only one buffer repeatedly"),
        }
    }
}

/// What a pipe is asked to hold, bytes: what a user without rights may have. Each of its places is for one page.
const PIPE_BYTES: i32 = 1 << 20;

/// From memory through a pipe.
struct Splice {
    connection: Connection,
    out: OwnedFd,
    into: OwnedFd,
}

impl Splice {
    fn over(connection: Connection) -> Result<Splice> {
        let (out, into) = pipe2(OFlag::O_CLOEXEC)?;
        // A smaller one does with more calls.
        let _ = fcntl(&into, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
        Ok(Splice {
            connection,
            out,
            into,
        })
    }

    /// Moves `bytes`, which are all that is in the pipe, to the socket.
    fn empty_pipe(&mut self, bytes: usize, flags: SpliceFFlags) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            self.connection.syscalls += 1;
            let (out, socket) = (&self.out, &self.connection.socket);
            let moved = insist(Wait::Event, || {
                Ok(splice(out, None, socket, None, left, flags)?)
            })?;
            ensure!(moved > 0, "the receiver closed the connection");
            left -= moved;
        }
        Ok(())
    }
}

/// From a file that is sent over and over.
struct Sendfile {
    connection: Connection,
    file: File,
    bytes: usize,
    at: usize,
}

impl Sendfile {
    fn of(connection: Connection, file: File, bytes: usize) -> Sendfile {
        Sendfile {
            connection,
            file,
            bytes,
            at: 0,
        }
    }
}

impl Stream for Splice {
    fn send_bytes(&self) -> usize {
        self.connection.send_bytes()
    }

    fn receive_bytes(&self) -> usize {
        self.connection.receive_bytes()
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let mut left = bytes;
        while !left.is_empty() {
            self.connection.syscalls += 1;
            let taken = vmsplice(&self.into, &[IoSlice::new(left)], SpliceFFlags::empty())?;
            left = &left[taken..];
            // The last segment of a piece does not wait for the next piece.
            let flags = match left.is_empty() {
                true => SpliceFFlags::empty(),
                false => SpliceFFlags::SPLICE_F_MORE,
            };
            self.empty_pipe(taken, flags)?;
        }
        Ok(())
    }

    fn receive(&mut self, space: &mut [u8]) -> Result<usize> {
        self.connection.receive(space)
    }

    fn syscalls(&self) -> u64 {
        self.connection.syscalls()
    }
}

impl Stream for Sendfile {
    fn send_bytes(&self) -> usize {
        self.connection.send_bytes()
    }

    fn receive_bytes(&self) -> usize {
        self.connection.receive_bytes()
    }

    /// `bytes` are the next of the mapped file, and the last of a lap at most.
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let end = self.at + bytes.len();
        let mut from = self.at as i64;
        while from < end as i64 {
            self.connection.syscalls += 1;
            let (socket, left) = (&self.connection.socket, end - from as usize);
            let sent = insist(Wait::Event, || {
                Ok(sendfile64(socket, &self.file, Some(&mut from), left)?)
            })?;
            ensure!(sent > 0, "the file was truncated");
        }
        self.at = end % self.bytes;
        Ok(())
    }

    fn receive(&mut self, space: &mut [u8]) -> Result<usize> {
        self.connection.receive(space)
    }

    fn syscalls(&self) -> u64 {
        self.connection.syscalls()
    }
}
