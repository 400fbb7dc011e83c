//! Runs both ends of a third-party program between two hosts.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use zerolane_cli::interrupt::Interrupt;

use super::link::{Host, Link};
use super::peer::Process;
use crate::contender::program::Program;
use crate::job::operations::Operations;
use crate::measured::Measured;

/// Longest run of a program.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two looks at whether it is over, or whether its server can be reached.
const LOOK: Duration = Duration::from_millis(20);
/// Time that a server gets to start listening.
const START: Duration = Duration::from_millis(300);
/// Tries to reach it.
const TRIES: usize = 5;

/// Where they run.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) link: Link,
    /// Of the initiator and of the responder.
    pub(crate) cores: [usize; 2],
    pub(crate) interrupt: Interrupt,
}

impl Place {
    /// One run of a program, both ends of it; what its initiator told.
    pub(crate) fn run(&self, program: Program, job: &Operations) -> Result<Measured> {
        let name = program.program();
        // Free here is free in a namespace of our own as well.
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut server = self.command(program, job, Host::Receiver);
        server
            .args(program.server(port, None))
            .stdout(Stdio::null());
        let server = Process::spawn(&mut server, &self.interrupt)
            .with_context(|| format!("starting {name}"))?;
        let address = self.link.address(Host::Receiver).to_string();
        let mut tried = 0;
        let said = loop {
            sleep(START);
            tried += 1;
            let mut client = self.command(program, job, Host::Sender);
            client.args(program.server(port, Some(address.clone())));
            match self.output(client) {
                Ok(said) => break said,
                Err(error) if tried == TRIES => {
                    return Err(error.context(format!("running {name}")));
                }
                Err(_) => self.interrupt.check()?,
            }
        };
        drop(server);
        program.measured(job, &said)
    }

    fn command(&self, program: Program, job: &Operations, host: Host) -> Command {
        let core = self.cores[usize::from(host == Host::Receiver)];
        let mut command = self.link.program(host, "taskset");
        command
            .args(["-c", &core.to_string(), program.program()])
            .args(program.arguments(job))
            .env("UCX_TLS", "tcp,self")
            .env("UCX_NET_DEVICES", self.link.device(host))
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// What a program prints before it ends well.
    fn output(&self, mut command: Command) -> Result<String> {
        let mut process = Process::spawn(command.stdout(Stdio::piped()), &self.interrupt)?;
        let deadline = Instant::now() + PATIENCE;
        // A page of output at most: it fits the pipe.
        let status = loop {
            match process.child.try_wait()? {
                Some(status) => break status,
                None if Instant::now() > deadline => bail!("did not end within {PATIENCE:?}"),
                None => sleep(LOOK),
            }
        };
        ensure!(status.success(), "ended with {status}");
        let mut said = String::new();
        let output = process.child.stdout.as_mut().context("no output")?;
        output.read_to_string(&mut said)?;
        Ok(said)
    }
}
