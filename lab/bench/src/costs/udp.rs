//! Measures the kernel's UDP per train at each end: one end sends some while the other is idle, then the other receives.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use nix::fcntl::{OFlag, SpliceFFlags, splice, vmsplice};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{UdpGroSegment, UdpGsoSegment};
use nix::sys::socket::{MsgFlags, sendmsg};
use nix::unistd::pipe2;
use socket2::{SockRef, Socket};
use zerolane::Region;
use zerolane_model::{Cost, TRAIN, TRAIN_END, TrainCosts};

use super::lockstep;
use super::place::{Host, Place, large_buffer};
use super::samples::{Effort, nanoseconds};
use crate::limits::STALL;

/// Trains in a turn: what is in flight.
const TURN: usize = 32;
const BUFFER: usize = 8 << 20;
/// Behind what a train is predicted to be, bytes.
const SPILL: usize = 4096;

/// Of trains from and to memory of so many bytes, over a path that carries so many bytes of a datagram.
pub(super) fn measure(
    effort: Effort,
    place: &Place<'_>,
    bytes: usize,
    datagram: usize,
) -> Result<TrainCosts> {
    let [copied, received] = by(effort, place, (bytes, datagram), None)?;
    let pipe = pipe2(OFlag::O_CLOEXEC)?;
    let [given, received_given] = by(effort, place, (bytes, datagram), Some(&pipe))?;
    Ok(TrainCosts {
        bytes,
        datagram,
        copied,
        received,
        given,
        received_given,
    })
}

fn by(
    effort: Effort,
    place: &Place<'_>,
    (bytes, datagram): (usize, usize),
    pipe: Option<&(OwnedFd, OwnedFd)>,
) -> Result<[Cost; 2]> {
    let (sender, receiver) = pair(place, datagram)?;
    let (mut from, mut to) = (Region::anonymous(bytes)?, Region::anonymous(bytes)?);
    from.fill(1);
    to.fill(2);
    // In one page: a pipe has as many places as a train has pages, and one for this.
    let mut end = Region::anonymous(TRAIN_END)?;
    end.fill(9);
    let trains = (bytes / TRAIN).max(1);
    let at = |train: usize| train % trains * TRAIN;
    // What this user may have queued, with what the kernel takes for itself.
    let queued = SockRef::from(&receiver).recv_buffer_size()? / (4 * TRAIN);
    let in_turn = TURN.min(queued).max(1);
    let in_sample = effort.bytes.max(bytes).div_ceil(in_turn * TRAIN);
    let turns = in_sample * (effort.samples + 1);
    let [sent, received] = lockstep::turns(
        place.cores,
        turns,
        |turn| {
            for train in 0..in_turn {
                let at = at(turn * in_turn + train);
                let payload = &from[at..at + TRAIN];
                let sent = match pipe {
                    None => copy(&sender, [payload, &end])?,
                    Some(pipe) => give(&sender, pipe, [payload, &end])?,
                };
                ensure!(
                    sent == TRAIN + TRAIN_END,
                    "{sent} bytes of a train were sent"
                );
            }
            Ok(())
        },
        |turn| {
            let (mut end, mut spill) = ([0; TRAIN_END], [0; SPILL]);
            for train in 0..in_turn {
                let at = at(turn * in_turn + train);
                let mut left = TRAIN + TRAIN_END;
                while left > 0 {
                    // What a device has cut comes in parts.
                    let had = TRAIN + TRAIN_END - left;
                    let place = &mut to[at + had.min(TRAIN)..at + TRAIN];
                    let got = receive(&receiver, place, &mut end, &mut spill)?;
                    ensure!(got <= left, "received more than a train at once");
                    left -= got;
                }
            }
            Ok(())
        },
    )?;
    // In the first caches settle.
    let cost = |seconds: Vec<f64>| {
        let samples = seconds.chunks_exact(in_sample).skip(1);
        let trains = (in_sample * in_turn) as f64;
        nanoseconds(samples.map(|it| it.iter().sum::<f64>() / trains))
    };
    Ok([cost(sent)?, cost(received)?])
}

fn copy(socket: &UdpSocket, pieces: [&[u8]; 2]) -> Result<usize> {
    let slices = pieces.map(IoSlice::new);
    Ok(sendmsg::<()>(
        socket.as_raw_fd(),
        &slices,
        &[],
        MsgFlags::empty(),
        None,
    )?)
}

fn give(socket: &UdpSocket, pipe: &(OwnedFd, OwnedFd), pieces: [&[u8]; 2]) -> Result<usize> {
    let slices = pieces.map(IoSlice::new);
    let filled = vmsplice(&pipe.1, &slices, SpliceFFlags::SPLICE_F_NONBLOCK)?;
    let flags = SpliceFFlags::SPLICE_F_NONBLOCK;
    Ok(splice(&pipe.0, None, socket, None, filled, flags)?)
}

fn receive(
    mut socket: &Socket,
    place: &mut [u8],
    end: &mut [u8],
    spill: &mut [u8],
) -> io::Result<usize> {
    socket.read_vectored(&mut [place, end, spill].map(IoSliceMut::new))
}

/// A connected pair that cuts after so many bytes, and merges.
fn pair(place: &Place<'_>, datagram: usize) -> Result<(UdpSocket, Socket)> {
    let bound = |host| {
        let address = SocketAddr::new(place.address(host), 0);
        place.within(host, || Ok(UdpSocket::bind(address)?))
    };
    let (sender, receiver) = (bound(Host::Sender)?, bound(Host::Receiver)?);
    sender.connect(receiver.local_addr()?)?;
    receiver.connect(sender.local_addr()?)?;
    setsockopt(&sender, UdpGsoSegment, &i32::try_from(datagram)?)
        .context("this kernel does not segment datagrams (UDP_SEGMENT)")?;
    setsockopt(&receiver, UdpGroSegment, &true)
        .context("this kernel does not merge datagrams (UDP_GRO)")?;
    large_buffer(&receiver, BUFFER)?;
    sender.set_write_timeout(Some(STALL))?;
    receiver.set_read_timeout(Some(STALL))?;
    Ok((sender, receiver.into()))
}
