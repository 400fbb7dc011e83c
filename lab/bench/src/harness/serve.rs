//! Runs `zerolane bench serve`: the other end of `bench flows --to`, `bench bulk --to` and their like.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::end;
use crate::limits;
use zerolane_cli::console;

/// Arguments of `zerolane bench serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address and port to listen on; anyone who can reach it can make this machine receive and send at full speed
    #[arg(long, default_value = "127.0.0.1:18181")]
    listen: SocketAddr,
    /// Core to run on; parallel flows use the following cores
    #[arg(long, default_value_t = 0)]
    core: usize,
}

/// Serves one client after the other until it is killed.
pub(crate) fn run(args: &Args) -> Result<()> {
    let listener = TcpListener::bind(args.listen)
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let address = listener.local_addr()?;
    console::say(format_args!(
        "listening on {address}; measure with: zerolane bench flows --to {address}"
    ))?;
    if address.ip().is_loopback() {
        let port = address.port();
        console::note(format_args!(
            "only this machine can reach it: --listen 0.0.0.0:{port} for others"
        ));
    }
    loop {
        let (stream, client) = listener.accept().context("waiting for a client")?;
        console::note(format_args!("{client}: measuring"));
        match serve(stream, args.core) {
            Ok(()) => console::note(format_args!("{client}: done")),
            Err(error) => console::note(format_args!("{client}: {error:#}")),
        }
    }
}

/// One client, served by a process of its own: its memory goes when it goes,
/// and its deadline ends it whatever the client does.
fn serve(stream: TcpStream, core: usize) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(limits::IDLE))?;
    stream.set_write_timeout(Some(limits::STALL))?;
    let bind = stream.local_addr()?.ip();
    let input = OwnedFd::from(stream.try_clone()?);
    let mut command = Command::new(std::env::current_exe()?);
    end::arguments(&mut command, bind, core, None);
    let status = command
        .stdin(Stdio::from(input))
        .stdout(Stdio::from(OwnedFd::from(stream)))
        .status()?;
    anyhow::ensure!(status.success(), "ended with {status}");
    Ok(())
}
