//! A port of the hub: a packet socket on one device, frames in batches.

use super::frame::ETHERNET_HEADER_BYTES;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, MultiHeaders, SockFlag, SockProtocol,
    SockType, SockaddrLike, bind, recvmmsg, sendmmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, SystemTime};

/// Frames taken or given in one system call. More would make the last of a
/// batch late.
pub(super) const BATCH_FRAMES: usize = 32;

/// What a port holds while the thread is elsewhere: at 10 Gb/s and the
/// kernel's way of counting, some 20 ms.
const SOCKET_BUFFER_BYTES: usize = 64 << 20;

/// A packet socket that sees the frames of one device, and no others.
#[derive(Debug)]
pub(super) struct Port {
    socket: OwnedFd,
    /// Longest frame, bytes.
    frame_bytes: usize,
}

/// A frame that a host sent.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) bytes: Vec<u8>,
    /// When the kernel saw it.
    pub(super) stamp: SystemTime,
}

/// What one look at a port brought.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    pub(super) frames: usize,
    /// Frames that the kernel dropped since the port was opened, if it said.
    pub(super) missed: Option<u64>,
}

impl Port {
    /// Opens the port on a device of the calling thread's namespace.
    pub(super) fn open(device: &str, mtu: u32) -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::EthAll,
        )?;
        bind(socket.as_raw_fd(), &address_of(device)?)?;
        setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BUFFER_BYTES)?;
        setsockopt(&socket, sockopt::SndBufForce, &SOCKET_BUFFER_BYTES)?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        setsockopt(&socket, sockopt::RxqOvfl, &1)?;
        Ok(Self {
            socket,
            frame_bytes: mtu as usize + ETHERNET_HEADER_BYTES,
        })
    }

    /// Bytes of the longest frame.
    pub(super) fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// Takes up to [`BATCH_FRAMES`] frames, in buffers from `spare` as far as
    /// there are any.
    pub(super) fn receive(
        &self,
        spare: &mut Vec<Vec<u8>>,
        into: &mut Vec<Received>,
    ) -> io::Result<Taken> {
        let mut buffers: Vec<Vec<u8>> = (0..BATCH_FRAMES)
            .map(|_| spare.pop().unwrap_or_default())
            .collect();
        for buffer in &mut buffers {
            buffer.resize(self.frame_bytes, 0);
        }
        let mut taken = Taken::default();
        let arrived = self.receive_into(&mut buffers, &mut taken)?;
        taken.frames = arrived.len();
        let mut buffers = buffers.into_iter();
        for (length, stamp) in arrived {
            let Some(mut bytes) = buffers.next() else {
                break;
            };
            bytes.truncate(length);
            into.push(Received { bytes, stamp });
        }
        spare.extend(buffers);
        Ok(taken)
    }

    /// Length and stamp of each frame that came into the buffers.
    fn receive_into(
        &self,
        buffers: &mut [Vec<u8>],
        taken: &mut Taken,
    ) -> io::Result<Vec<(usize, SystemTime)>> {
        let control = cmsg_space!(TimeSpec, u32);
        // Made anew each time: the kernel writes the used lengths over the
        // free ones, and nobody sets them back.
        let mut headers = MultiHeaders::<()>::preallocate(buffers.len(), Some(control));
        let mut slices: Vec<[IoSliceMut<'_>; 1]> = buffers
            .iter_mut()
            .map(|buffer| [IoSliceMut::new(buffer)])
            .collect();
        let results = match recvmmsg(
            self.socket.as_raw_fd(),
            &mut headers,
            slices.iter_mut(),
            MsgFlags::MSG_DONTWAIT,
            None,
        ) {
            Ok(results) => results,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(Vec::new()),
            // The device went down; what comes later is told later.
            Err(Errno::ENETDOWN) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut arrived = Vec::new();
        for message in results {
            let mut stamp = None;
            for control in message.cmsgs()? {
                match control {
                    ControlMessageOwned::ScmTimestampns(time) => stamp = Some(wall(time)),
                    ControlMessageOwned::RxqOvfl(count) => taken.missed = Some(count.into()),
                    _ => {}
                }
            }
            arrived.push((message.bytes, stamp.unwrap_or_else(SystemTime::now)));
        }
        Ok(arrived)
    }

    /// Sends frames; returns how many of them the kernel did not take.
    pub(super) fn send(&self, frames: &[&[u8]]) -> u64 {
        let mut refused = 0;
        let mut rest = frames;
        while !rest.is_empty() {
            let sent = self.send_some(rest).unwrap_or(0);
            if sent == 0 {
                // The first is what it did not take.
                refused += 1;
                rest = &rest[1..];
            } else {
                rest = &rest[sent.min(rest.len())..];
            }
        }
        refused
    }

    fn send_some(&self, frames: &[&[u8]]) -> io::Result<usize> {
        let slices: Vec<[IoSlice<'_>; 1]> =
            frames.iter().map(|frame| [IoSlice::new(frame)]).collect();
        let mut headers = MultiHeaders::<()>::preallocate(slices.len(), None);
        let nobody: Vec<Option<()>> = vec![None; slices.len()];
        let results = sendmmsg(
            self.socket.as_raw_fd(),
            &mut headers,
            slices.iter(),
            nobody,
            [],
            MsgFlags::MSG_DONTWAIT,
        )?;
        Ok(results.count())
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The address to bind to: the device's index, and no protocol, so that the
/// socket's own stays.
fn address_of(device: &str) -> io::Result<LinkAddr> {
    getifaddrs()?
        .filter(|interface| interface.interface_name == device)
        .find_map(|interface| {
            let address = interface.address?;
            (address.family() == Some(AddressFamily::Packet))
                .then(|| address.as_link_addr().copied())?
        })
        .ok_or_else(|| io::Error::other(format!("no device {device} here")))
}

fn wall(time: TimeSpec) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from(time)
}
