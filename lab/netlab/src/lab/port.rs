//! Reads and writes frames in batches at one port of the hub: a packet socket on one device.

use super::frame::{ETHERNET_HEADER_BYTES, Frame};
use super::segments::{self, Together};
use super::vnet::{self, Vnet};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, MultiHeaders, SockFlag, SockProtocol,
    SockType, SockaddrLike, bind, recvmmsg, sendmmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;
use nix::{setsockopt_impl, sockopt_impl};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, SystemTime};

/// Frames taken or given in one system call. More would make the last of a
/// batch late.
pub(super) const BATCH_FRAMES: usize = 32;

/// Longest frame that a host hands over, to be cut: an IP packet, and what the kernel says of it.
const LONGEST_BYTES: usize = vnet::HEADER_BYTES + ETHERNET_HEADER_BYTES + 65_535;

/// `PACKET_VNET_HDR` of linux/if_packet.h.
const PACKET_VNET_HDR: libc::c_int = 15;

sockopt_impl!(
    /// Long frames carry the information needed to segment them.
    VnetHeader,
    SetOnly,
    libc::SOL_PACKET,
    PACKET_VNET_HDR,
    bool
);

/// Bytes that a port holds while the thread is off its core: some 20 ms at 10 Gb/s, as the
/// kernel counts them.
const SOCKET_BUFFER_BYTES: usize = 64 << 20;

/// A packet socket that sees the frames of one device, and no others.
#[derive(Debug)]
pub(super) struct Port {
    socket: OwnedFd,
    /// Longest frame on the wire, bytes.
    frame_bytes: usize,
}

/// Room for the frames of one receive from a port.
#[derive(Debug)]
pub(super) struct Room(Vec<Vec<u8>>);

impl Room {
    pub(super) fn new() -> Self {
        Self(vec![vec![0; LONGEST_BYTES]; BATCH_FRAMES])
    }
}

/// A frame that a host sent.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) frame: Frame,
    /// When the kernel saw it.
    pub(super) stamp: SystemTime,
}

/// The result of one receive from a port.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    /// Pieces from the kernel: each is a frame, or must be cut into several.
    pub(super) pieces: usize,
    /// Of these, pieces that no host here should send.
    pub(super) unknown: u64,
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
        setsockopt(&socket, VnetHeader, &true)?;
        Ok(Self {
            socket,
            frame_bytes: mtu as usize + ETHERNET_HEADER_BYTES,
        })
    }

    /// Bytes of the longest frame.
    pub(super) fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// Takes what hosts sent in up to [`BATCH_FRAMES`] pieces, which may be many more frames, in buffers
    /// from `spare` as far as there are any.
    pub(super) fn receive(
        &self,
        room: &mut Room,
        spare: &mut Vec<Vec<u8>>,
        into: &mut Vec<Received>,
    ) -> io::Result<Taken> {
        let mut taken = Taken::default();
        let arrived = self.receive_into(&mut room.0, &mut taken)?;
        taken.pieces = arrived.len();
        for (bytes, (length, stamp)) in room.0.iter().zip(arrived) {
            let bytes = bytes.get(..length).unwrap_or(bytes);
            let Some((header, bytes)) = bytes.split_first_chunk() else {
                continue;
            };
            match Vnet::parse(header) {
                Some(vnet) => segments::cut(&vnet, bytes, spare, |frame| {
                    into.push(Received { frame, stamp });
                }),
                None => taken.unknown += 1,
            }
        }
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
        // free ones, and nothing sets them back.
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
            // The device went down; later frames are received later.
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
    pub(super) fn send(&self, frames: &[&Frame]) -> u64 {
        let all = segments::put_together(frames);
        let mut refused = 0;
        let mut rest = &all[..];
        while let Some(first) = rest.first() {
            let sent = self.send_some(rest).unwrap_or(0);
            if sent == 0 {
                // The kernel did not take the first.
                refused += first.frames as u64;
            }
            rest = &rest[sent.clamp(1, rest.len())..];
        }
        refused
    }

    fn send_some(&self, all: &[Together<'_>]) -> io::Result<usize> {
        let slices: Vec<Vec<IoSlice<'_>>> = all
            .iter()
            .map(|it| {
                let parts = std::iter::once(&it.head[..]).chain(it.payloads.iter().copied());
                parts.map(IoSlice::new).collect()
            })
            .collect();
        let mut headers = MultiHeaders::<()>::preallocate(slices.len(), None);
        let connected: Vec<Option<()>> = vec![None; slices.len()];
        let results = sendmmsg(
            self.socket.as_raw_fd(),
            &mut headers,
            slices.iter(),
            connected,
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
pub(crate) fn address_of(device: &str) -> io::Result<LinkAddr> {
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
