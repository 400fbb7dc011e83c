//! Measures the kernel's TCP per byte at each end: one end sends while the other is idle, then the other receives.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use anyhow::{Result, ensure};
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice, vmsplice};
use nix::sys::sendfile::sendfile64;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::SndBufForce;
use nix::unistd::pipe2;
use socket2::{Domain, SockRef, Socket, Type};
use zerolane::Region;
use zerolane_model::{TcpCosts, Way as WayCosts};

use super::lockstep;
use super::place::{Host, Place, large_buffer};
use super::samples::{Effort, per_kib};
use crate::contender::congestion;
use crate::contender::source_sink::file_in_memory;
use crate::limits::STALL;

/// What is sent in a turn, bytes, at least; it is in flight then.
const TURN: usize = 2 << 20;
/// What is handed over at a time, bytes.
const PIECE: usize = 1 << 20;
/// Buffers that hold a turn, bytes.
const BUFFER: usize = 8 << 20;
/// And one that does not: the rest leaves when the receiver makes room.
const SMALL_BUFFER: usize = 256 << 10;

/// How the sender has its bytes sent.
enum Way {
    Send,
    Splice(OwnedFd, OwnedFd),
    Sendfile(File),
}

/// From and to memory of so many bytes.
pub(super) fn measure(effort: Effort, place: &Place<'_>, bytes: usize) -> Result<TcpCosts> {
    let (out, into) = pipe2(OFlag::O_CLOEXEC)?;
    // A smaller one does with more calls.
    let _ = fcntl(&into, FcntlArg::F_SETPIPE_SZ(1 << 20));
    let file = file_in_memory(bytes)?;
    file.write_all_at(&vec![7; bytes], 0)?;
    Ok(TcpCosts {
        bytes,
        send: by(effort, place, bytes, &Way::Send)?,
        splice: by(effort, place, bytes, &Way::Splice(out, into))?,
        sendfile: by(effort, place, bytes, &Way::Sendfile(file))?,
    })
}

fn by(effort: Effort, place: &Place<'_>, bytes: usize, way: &Way) -> Result<WayCosts> {
    let [send, receive] = with(effort, place, bytes, way, BUFFER)?;
    let [queue, receive_clocked] = with(effort, place, bytes, way, SMALL_BUFFER)?;
    Ok(WayCosts {
        send: per_kib(send)?,
        receive: per_kib(receive)?,
        queue: per_kib(queue)?,
        receive_clocked: per_kib(receive_clocked)?,
    })
}

/// Seconds a byte at either end, of each sample, with a receive buffer of so many bytes.
fn with(
    effort: Effort,
    place: &Place<'_>,
    bytes: usize,
    way: &Way,
    buffer: usize,
) -> Result<[Vec<f64>; 2]> {
    let (mut sender, mut receiver) = pair(place, buffer)?;
    let (mut from, mut to) = (Region::anonymous(bytes)?, Region::anonymous(bytes)?);
    from.fill(1);
    to.fill(2);
    // What this user may have queued, with what the kernel takes for itself.
    let most = SockRef::from(&sender).send_buffer_size()? / 4;
    let (turn, piece) = (TURN.min(most), PIECE.min(most).min(bytes));
    let (in_lap, in_turn) = (bytes.div_ceil(piece), turn.div_ceil(piece));
    let range = |number: usize| {
        let at = number % in_lap * piece;
        at..(at + piece).min(bytes)
    };
    let in_sample = effort.bytes.max(bytes).div_ceil(in_turn * piece);
    let pieces = |turn: usize| (turn * in_turn..(turn + 1) * in_turn).map(range);
    // In the first windows and caches settle.
    let turns = in_sample * (effort.samples + 1);
    let seconds = lockstep::turns(
        place.cores,
        turns,
        |turn| pieces(turn).try_for_each(|range| way.send(&mut sender, &from, range)),
        |turn| pieces(turn).try_for_each(|range| Ok(receiver.read_exact(&mut to[range])?)),
    )?;
    let samples = |seconds: Vec<f64>| {
        let samples = seconds.chunks_exact(in_sample).enumerate().skip(1);
        let per_byte = samples.map(|(sample, it)| {
            let turns = sample * in_sample..(sample + 1) * in_sample;
            let bytes: usize = turns.flat_map(pieces).map(|range| range.len()).sum();
            it.iter().sum::<f64>() / bytes as f64
        });
        per_byte.collect()
    };
    Ok(seconds.map(samples))
}

impl Way {
    fn send(&self, stream: &mut TcpStream, from: &[u8], range: Range<usize>) -> Result<()> {
        match self {
            Way::Send => stream.write_all(&from[range])?,
            Way::Splice(out, into) => {
                let mut left = &from[range];
                while !left.is_empty() {
                    let mut taken = vmsplice(into, &[IoSlice::new(left)], SpliceFFlags::empty())?;
                    left = &left[taken..];
                    let flags = match left.is_empty() {
                        true => SpliceFFlags::empty(),
                        false => SpliceFFlags::SPLICE_F_MORE,
                    };
                    while taken > 0 {
                        let moved = splice(out, None, &*stream, None, taken, flags)?;
                        ensure!(moved > 0, "the receiver closed the connection");
                        taken -= moved;
                    }
                }
            }
            Way::Sendfile(file) => {
                let mut at = range.start as i64;
                while at < range.end as i64 {
                    let left = range.end - at as usize;
                    let sent = sendfile64(&*stream, file, Some(&mut at), left)?;
                    ensure!(sent > 0, "the file was truncated");
                }
            }
        }
        Ok(())
    }
}

/// A connection from the one host to the other; the sender's buffer holds a turn, the receiver's so many bytes.
fn pair(place: &Place<'_>, buffer: usize) -> Result<(TcpStream, TcpStream)> {
    let socket = |host| {
        place.within(host, || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            congestion::choose(&socket, None)?;
            socket.set_read_timeout(Some(STALL))?;
            socket.set_write_timeout(Some(STALL))?;
            anyhow::Ok(socket)
        })
    };
    let (sender, listener) = (socket(Host::Sender)?, socket(Host::Receiver)?);
    if setsockopt(&sender, SndBufForce, &BUFFER).is_err() {
        sender.set_send_buffer_size(BUFFER)?;
    }
    large_buffer(&listener, buffer)?;
    let at = SocketAddr::new(place.address(Host::Receiver), 0);
    listener.bind(&at.into())?;
    listener.listen(1)?;
    let listener = TcpListener::from(listener);
    sender.connect(&listener.local_addr()?.into())?;
    let (receiver, _) = listener.accept()?;
    receiver.set_read_timeout(Some(STALL))?;
    Ok((sender.into(), receiver))
}
