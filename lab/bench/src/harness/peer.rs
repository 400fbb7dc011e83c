//! Controls one end from the orchestrator: a child process or another machine.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;

use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

use super::channel::Channel;
use super::failure::said;
use super::machine::Machine;
use super::protocol::{Reply, Request, VERSION};
use crate::job::Job;
use crate::limits;
use crate::measured::Measured;

/// One end, wherever it runs.
pub(crate) struct Peer {
    name: &'static str,
    channel: Channel<Box<dyn BufRead>, Box<dyn Write>>,
    /// The connection to another machine, whose answers have to come in time.
    remote: Option<TcpStream>,
    _process: Option<Process>,
}

/// Takes a flow's number and the bytes of one of its samples, as an end tells them.
pub(crate) type Heard<'a> = &'a mut dyn FnMut(usize, u64) -> Result<()>;

/// A child that does not outlive its handle.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) child: Child,
    interrupt: Interrupt,
}

impl Process {
    /// Starts `command`; a request to stop ends it.
    pub(crate) fn spawn(command: &mut Command, interrupt: &Interrupt) -> Result<Process> {
        let child = command.spawn()?;
        interrupt.watch(pid(&child));
        Ok(Process {
            child,
            interrupt: interrupt.clone(),
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.interrupt.forget(pid(&self.child));
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pid(child: &Child) -> Pid {
    // A pid fits: the kernel's pid_t is an i32.
    Pid::from_raw(child.id().cast_signed())
}

impl Peer {
    /// Starts `command` as an end and speaks to it through pipes.
    pub(crate) fn spawn(
        name: &'static str,
        mut command: Command,
        interrupt: &Interrupt,
    ) -> Result<Peer> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command, interrupt)
            .with_context(|| format!("cannot start the {name} process"))?;
        let child = &mut process.child;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else {
            bail!("the {name} process has no pipes")
        };
        Ok(Peer {
            name,
            channel: Channel::new(Box::new(BufReader::new(output)), Box::new(input)),
            remote: None,
            _process: Some(process),
        })
    }

    /// Connects to `zerolane bench serve` on another machine.
    pub(crate) fn connect(name: &'static str, to: SocketAddr) -> Result<Peer> {
        let stream = TcpStream::connect_timeout(&to, limits::CONNECT)
            .with_context(|| format!("{to} does not answer; is `zerolane bench serve` running?"))
            .context(Exit::Unreachable)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(limits::STALL))?;
        let (reader, remote) = (BufReader::new(stream.try_clone()?), stream.try_clone()?);
        let channel =
            Channel::<Box<dyn BufRead>, Box<dyn Write>>::new(Box::new(reader), Box::new(stream));
        let peer = Peer {
            name,
            channel,
            remote: Some(remote),
            _process: None,
        };
        peer.allow(limits::IDLE)?;
        Ok(peer)
    }

    /// Its answers have to come within so long: an end on this machine is seen to end, another machine may be silent for
    /// ever.
    fn allow(&self, time: Duration) -> Result<()> {
        match &self.remote {
            Some(remote) => Ok(remote.set_read_timeout(Some(time))?),
            None => Ok(()),
        }
    }

    /// The same, for an end that gives up the job by itself when the job's deadline has passed.
    fn allow_job(&self, job: &Job) -> Result<()> {
        self.allow(job.deadline() + limits::STALL)
    }

    /// Sends one message.
    fn tell(&mut self, message: &impl Serialize) -> Result<()> {
        self.channel
            .send(message)
            .with_context(|| format!("the {} is gone", self.name))
    }

    /// The next message, whatever its type.
    fn hear<M: DeserializeOwned>(&mut self) -> Result<M> {
        let name = self.name;
        self.channel
            .receive()
            .with_context(|| format!("reading from the {name}"))?
            .ok_or_else(|| anyhow!("the {name} ended without an answer"))
    }

    /// The next reply; a failure of the end is an error here.
    fn reply(&mut self) -> Result<Reply> {
        match self.hear()? {
            Reply::Failed { message, failure } => {
                Err(said(format!("at the {}: {message}", self.name), failure))
            }
            reply => Ok(reply),
        }
    }

    /// Makes sure that the end speaks this protocol; what machine it is on.
    pub(crate) fn greet(&mut self) -> Result<Machine> {
        self.tell(&Request::Hello { version: VERSION })?;
        match self.reply().context("no zerolane bench answers there")? {
            Reply::Hello { version, machine } => {
                ensure!(
                    version == VERSION,
                    "it speaks bench protocol {version}, not {VERSION}"
                );
                Ok(machine)
            }
            other => self.unexpected(&other),
        }
    }

    /// The end's memcpy speed on buffers of so many bytes, Gb/s.
    pub(crate) fn memcpy(&mut self, buffer: usize) -> Result<f64> {
        self.tell(&Request::Memcpy { buffer })?;
        match self.reply()? {
            Reply::Memcpy { gbps } => Ok(gbps),
            other => self.unexpected(&other),
        }
    }

    /// Asks the end to respond to the initiators of a job; the port it listens on, and over raw Ethernet the hardware address.
    pub(crate) fn respond(&mut self, job: &Job) -> Result<(u16, Option<[u8; 6]>)> {
        self.allow_job(job)?;
        self.tell(&Request::Respond(job.clone()))?;
        match self.reply()? {
            Reply::Listening { port, hardware } => Ok((port, hardware)),
            other => self.unexpected(&other),
        }
    }

    /// Asks the end to initiate a job.
    pub(crate) fn initiate(&mut self, to: SocketAddr, job: &Job) -> Result<()> {
        self.allow_job(job)?;
        let job = job.clone();
        self.tell(&Request::Initiate { to, job })
    }

    /// Waits for what the end measured of the job that it was asked to do, connection by connection. What it says
    /// until then is handed to `heard`.
    pub(crate) fn done(&mut self, heard: Heard<'_>) -> Result<Vec<Measured>> {
        loop {
            match self.reply()? {
                Reply::Sample { flow, bytes } => heard(flow, bytes)?,
                Reply::Done { measured } => return Ok(measured),
                other => return self.unexpected(&other),
            }
        }
    }

    /// From here on the end is called so.
    pub(crate) fn rename(&mut self, name: &'static str) {
        self.name = name;
    }

    fn unexpected<T>(&self, reply: &Reply) -> Result<T> {
        bail!("the {} answered out of turn: {reply:?}", self.name)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::job::tests::every_work;

    /// The other machine says where it listens, and then is gone without a word.
    #[test]
    fn connect__another_machine_has_the_time_of_the_job_and_no_more() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let machine = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut channel = Channel::new(BufReader::new(&stream), &stream);
            for _ in every_work() {
                let _: Request = channel.receive().unwrap().unwrap();
                let (port, hardware) = (9, None);
                channel.send(&Reply::Listening { port, hardware }).unwrap();
            }
        });
        let mut peer = Peer::connect("receiver", to).unwrap();
        let allowed = |peer: &Peer| peer.remote.as_ref().unwrap().read_timeout().unwrap();
        assert_eq!(allowed(&peer), Some(limits::IDLE));
        for job in every_work() {
            peer.respond(&job).unwrap();
            assert_eq!(allowed(&peer), Some(job.deadline() + limits::STALL));
        }
        machine.join().unwrap();
    }
}
