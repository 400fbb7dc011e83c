//! Asks a pump in another process for its connections.

use super::call::{Call, Runner};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with, sockopt,
};
use std::io;
use std::time::Duration;

/// How long a pump may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest packet of a list.
const PACKET_BYTES: usize = 64 << 10;

/// The connections of a pump, a line each: `zerolane`, `tcp` or `undecided`, the own address, the peer's, the bytes from
/// the program and to it.
///
/// # Errors
/// The pump is gone, or belongs to another user.
pub fn connections(runner: &Runner) -> io::Result<Vec<String>> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(&runner.name())?)?;
    send(
        &socket,
        &Call::Show.write(&runner.secret),
        SendFlags::NOSIGNAL,
    )?;
    let mut lines = Vec::new();
    let mut packet = vec![0; PACKET_BYTES];
    loop {
        let (len, _) = recv(&socket, &mut packet[..], RecvFlags::empty())?;
        if len == 0 {
            return Ok(lines);
        }
        let text = String::from_utf8_lossy(&packet[..len]);
        lines.extend(text.lines().map(str::to_owned));
    }
}
