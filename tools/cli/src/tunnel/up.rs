//! Implements `zerolane up`: makes the interface, and moves its packets until a signal or `zerolane down`.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Context, Result, anyhow, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use zerolane::keys::identity;
use zerolane::security::Identity;
use zerolane::tun::{TunDevice, TunOffload};
use zerolane_tunnel::config::{Config, Interface};
use zerolane_tunnel::driver::Tunnel;
use zerolane_tunnel::limits::MAX_CONFIG;

use super::control::{self, Question};
use super::{UpArgs, file_and_name, rights};
use crate::console;
use crate::exit::Exit;
use crate::security::{identity_file, in_file};

/// What a question writes to wake the tunnel; signals write another byte.
const ASKED: u8 = b'?';
/// What is written when the other end of a login is gone.
pub(super) const GONE: u8 = b'!';
/// What is written when the peer should be connected.
pub(super) const LOOK: u8 = b'.';

/// What to bring up.
pub(super) struct Start {
    /// Of the interface.
    pub(super) name: String,
    pub(super) config: Config,
    pub(super) identity: Arc<Identity>,
    pub(super) offload: TunOffload,
    /// An interface that another program made.
    pub(super) given: Option<TunDevice>,
}

/// Why a tunnel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Signal,
    /// `zerolane down`.
    Down,
    /// The other end of the login is gone.
    Gone,
    /// No peer was connected when one should have been.
    Unconnected,
}

/// Runs the tunnel of a file.
pub(super) fn from_file(
    args: &UpArgs,
    offload: TunOffload,
    given: Option<TunDevice>,
) -> Result<Exit> {
    let (file, mut name) = file_and_name(&args.config)?;
    if let Some(device) = &given {
        name = device.name().to_owned();
    }
    let mut config = read(&file).with_context(|| format!("{}", file.display()))?;
    let start = Start {
        name,
        identity: Arc::new(own_key(&mut config.interface)?),
        config,
        offload,
        given,
    };
    let (wake, woken) = UnixStream::pair()?;
    bring_up(start, (wake, woken), |_| Ok(())).map(|it| match it {
        End::Down => Exit::Success,
        _ => Exit::Interrupted,
    })
}

/// Makes the interface, and moves its packets until a byte comes through `woken` that ends the tunnel. Calls `opened`
/// once this end listens.
pub(super) fn bring_up(
    start: Start,
    (wake, woken): (UnixStream, UnixStream),
    opened: impl FnOnce(&Tunnel) -> Result<()>,
) -> Result<End> {
    let Start {
        name,
        config,
        identity,
        offload,
        given,
    } = start;
    wake.set_nonblocking(true)?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
    }
    let listener = control::listen(&name)
        .with_context(|| format!("{name} is up already, or its socket cannot be made"))
        .context(Exit::Failure)?;
    let interface = &config.interface;
    commands(&interface.pre_up, &name)?;
    let mut tunnel = match given {
        Some(device) => Tunnel::adopt(device, &config, identity)?,
        None => Tunnel::open(&name, &config, identity, offload)?,
    };
    let done = opened(&tunnel)
        .and_then(|()| serve(&mut tunnel, (&name, interface), (wake, woken), listener));
    let before = commands(&interface.pre_down, &name);
    if !interface.dns.is_empty() {
        // The interface takes them with it, if that fails.
        let _ = resolvconf(&["-d", &name, "-f"], "");
    }
    drop(tunnel);
    let after = commands(&interface.post_down, &name);
    let how = done?;
    before.and(after)?;
    Ok(how)
}

/// Moves packets until the end.
fn serve(
    tunnel: &mut Tunnel,
    (name, interface): (&str, &Interface),
    (wake, mut woken): (UnixStream, UnixStream),
    listener: UnixListener,
) -> Result<End> {
    if !interface.dns.is_empty() {
        let lines = interface
            .dns
            .iter()
            .map(|it| match it.parse::<std::net::IpAddr>() {
                Ok(server) => format!("nameserver {server}\n"),
                Err(_) => format!("search {it}\n"),
            });
        resolvconf(&["-a", name, "-m", "0", "-x"], &lines.collect::<String>())?;
    }
    commands(&interface.post_up, name)?;
    rights::give_up(interface)?;
    let (asks, asked) = channel();
    std::thread::Builder::new()
        .name("control".into())
        .spawn(move || take_questions(&listener, &wake, &asks))?;
    console::note(format_args!("{name} is up: zerolane show {name}"));
    loop {
        tunnel.run_until(woken.as_fd())?;
        let mut byte = [0];
        woken.read_exact(&mut byte)?;
        match byte[0] {
            ASKED if answer(tunnel, &asked) => return Ok(End::Down),
            LOOK if !tunnel.is_connected() => return Ok(End::Unconnected),
            ASKED | LOOK => {}
            GONE => return Ok(End::Gone),
            _ => return Ok(End::Signal),
        }
    }
}

/// Passes on questions, each with the connection for its answer.
fn take_questions(
    listener: &UnixListener,
    mut wake: &UnixStream,
    asks: &Sender<(Question, UnixStream)>,
) {
    for caller in listener.incoming().flatten() {
        let Ok(Some(question)) = control::question(&caller) else {
            continue;
        };
        if asks.send((question, caller)).is_err() || wake.write_all(&[ASKED]).is_err() {
            return;
        }
    }
}

/// Answers a question. True if that ends the tunnel; the caller hears so when the process is gone.
fn answer(tunnel: &mut Tunnel, asked: &Receiver<(Question, UnixStream)>) -> bool {
    let Ok((question, mut caller)) = asked.try_recv() else {
        return false;
    };
    match question {
        Question::Show => {
            let status = serde_json::to_string(&tunnel.status()).unwrap_or_default();
            // A caller that is gone needs no answer.
            let _ = writeln!(caller, "{status}");
            false
        }
        Question::Down => {
            // Closed by the end of the process, after the interface is gone.
            std::mem::forget(caller);
            true
        }
    }
}

fn read(file: &std::path::Path) -> Result<Config> {
    let opened = std::fs::File::open(file)?;
    let mut text = String::new();
    let len = opened.take(MAX_CONFIG + 1).read_to_string(&mut text)?;
    if len as u64 > MAX_CONFIG {
        bail!("longer than {MAX_CONFIG} bytes");
    }
    Ok(Config::parse(&text)?)
}

/// The key of this end: that of the configuration, or of this user.
fn own_key(interface: &mut Interface) -> Result<Identity> {
    if let Some(identity) = interface.identity.take() {
        return Ok(identity);
    }
    let path = identity_file(interface.identity_file.take())?;
    let found = identity::load(&path).map_err(in_file(&path))?;
    found.ok_or_else(|| anyhow!("no key in {}: zerolane keygen", path.display()))
}

fn commands(list: &[String], name: &str) -> Result<()> {
    for command in list {
        let command = command.replace("%i", name);
        console::note(format_args!("+ {command}"));
        let status = Command::new("sh").args(["-c", &command]).status()?;
        if !status.success() {
            bail!("`{command}` failed: {status}");
        }
    }
    Ok(())
}

fn resolvconf(args: &[&str], input: &str) -> Result<()> {
    let child = Command::new("resolvconf")
        .args(args)
        .stdin(Stdio::piped())
        .spawn();
    let mut child = child.context("DNS needs the program resolvconf")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    match child.wait()? {
        status if status.success() => Ok(()),
        status => bail!("resolvconf failed: {status}"),
    }
}
