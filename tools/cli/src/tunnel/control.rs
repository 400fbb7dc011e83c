//! Talks to a running `zerolane up` by a socket that vanishes with its process.

use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::Uid;

/// In front of the name of the interface, in the abstract namespace of this network namespace.
const PREFIX: &str = "zerolane-tunnel-";
/// Longest answer, bytes: a status of the most peers.
const MAX_ANSWER: u64 = 1 << 20;
/// Answers a user who may not ask.
const REFUSED: &[u8] = b"refused";
/// How long an end may take to ask or to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Show,
    Down,
}

fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{PREFIX}{name}"))
}

/// Takes questions about interface `name`.
pub(super) fn listen(name: &str) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&address(name)?)
}

/// The question of a caller. Refuses users other than this one and root.
pub(super) fn question(mut caller: &UnixStream) -> io::Result<Option<Question>> {
    let user = Uid::from_raw(getsockopt(caller, PeerCredentials)?.uid());
    if !user.is_root() && user != Uid::effective() {
        caller.write_all(REFUSED)?;
        return Ok(None);
    }
    caller.set_read_timeout(Some(PATIENCE))?;
    caller.set_write_timeout(Some(PATIENCE))?;
    let mut asked = [0];
    caller.read_exact(&mut asked)?;
    Ok(match asked {
        [b's'] => Some(Question::Show),
        [b'd'] => Some(Question::Down),
        _ => None,
    })
}

/// Asks the process of interface `name`, and returns its answer when it closes the connection.
///
/// # Errors
/// `PermissionDenied`: it runs as another user, and this one is not root. Or it is not there, or gives no answer.
pub(super) fn ask(name: &str, question: Question) -> io::Result<String> {
    let mut stream = UnixStream::connect_addr(&address(name)?)?;
    stream.set_read_timeout(Some(2 * PATIENCE))?;
    let asked = match question {
        Question::Show => b"s",
        Question::Down => b"d",
    };
    let sent = stream.write_all(asked);
    let mut answer = Vec::new();
    let all = stream.take(MAX_ANSWER).read_to_end(&mut answer);
    // Then it closed before it read the question, so that asking or reading may have failed.
    if answer == REFUSED {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    sent?;
    all?;
    String::from_utf8(answer).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The names of the interfaces that run in this network namespace.
pub(super) fn names() -> io::Result<Vec<String>> {
    let sockets = std::fs::read_to_string("/proc/net/unix")?;
    let paths = sockets.lines().filter_map(|it| it.rsplit(' ').next());
    let names = paths.filter_map(|it| it.strip_prefix('@')?.strip_prefix(PREFIX));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    names.dedup();
    Ok(names)
}
