//! Opens packet sockets and uses them: everything about the kernel's raw Ethernet and nothing about the protocol.
//!
//! The sockets leave the frame's header to the kernel (SOCK_DGRAM). Received bytes begin with the header of the
//! Scheduled Transfer, and the kernel reports sender and destination.

use crate::address::ethernet::{Hardware, Station, is_group};
use crate::unavailable::NoEthernet;
use socket2::{Domain, SockAddr, SockFilter, Socket, Type};
use std::io;
use std::os::fd::AsRawFd;
use zerolane_wire::discovery::Discovery;
use zerolane_wire::encapsulation::{ETHERTYPE, Encapsulation, pad_frame, padded};

/// The link-layer addresses that the kernel reports of a frame, and takes for one.
pub(crate) type LinkName = libc::sockaddr_ll;

/// Bytes read of an unauthenticated peer's frame: more than any such frame has.
const SHOWN: usize = 2048;

/// Position of the sender's port in a received header.
const S_PORT: std::ops::Range<usize> = 6..8;

/// A packet socket at an interface, which receives frames that pass `filter`, and the interface's hardware address.
///
/// # Errors
/// [`NoEthernet`], or the system has no resources for a socket.
pub(crate) fn open(interface: u32, filter: &[SockFilter]) -> io::Result<(Socket, Hardware)> {
    let socket = unbound(filter)?;
    let none = || NoEthernet::NoInterface(format!("number {interface}"));
    let bound = socket.bind(&sock_addr(&link_name(interface, [0; 6])));
    bound.map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => none().into(),
        _ => error,
    })?;
    let local = read_link_name(&socket.local_addr()?).ok_or_else(none)?;
    if local.sll_hatype != libc::ARPHRD_ETHER {
        let name = name_of(&socket, interface).unwrap_or_default();
        return Err(NoEthernet::OtherKind(name).into());
    }
    Ok((socket, hardware_of(&local)))
}

/// A packet socket at all interfaces, which receives frames that pass `filter`.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_anywhere(filter: &[SockFilter]) -> io::Result<Socket> {
    let socket = unbound(filter)?;
    socket.bind(&sock_addr(&link_name(0, [0; 6])))?;
    Ok(socket)
}

/// A socket that receives nothing until it is bound, because it has no protocol before, and then only frames that pass
/// `filter`.
fn unbound(filter: &[SockFilter]) -> io::Result<Socket> {
    let socket =
        Socket::new(Domain::PACKET, Type::DGRAM, None).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => NoEthernet::NotPermitted.into(),
            _ => error,
        })?;
    socket.set_nonblocking(true)?;
    socket.attach_filter(filter)?;
    Ok(socket)
}

/// The destination for a frame to `hardware`.
pub(crate) fn link_name(interface: u32, hardware: Hardware) -> LinkName {
    let [a, b, c, d, e, f] = hardware;
    LinkName {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ETHERTYPE.to_be(),
        sll_ifindex: interface.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: [a, b, c, d, e, f, 0, 0],
    }
}

/// The hardware address in `name`.
pub(crate) fn hardware_of(name: &LinkName) -> Hardware {
    let [a, b, c, d, e, f, ..] = name.sll_addr;
    [a, b, c, d, e, f]
}

/// Whether a frame was for this host, outside of any VLAN. A frame with a numbered tag and no interface for it is shown
/// by the kernel as another host's.
pub(crate) fn is_ours(name: &LinkName) -> bool {
    name.sll_pkttype == libc::PACKET_HOST && name.sll_halen == 6
}

/// Whether a frame was for all hosts of the segment, outside of any VLAN.
fn is_for_all(name: &LinkName) -> bool {
    name.sll_pkttype == libc::PACKET_BROADCAST && name.sll_halen == 6
}

/// The sender of a frame without a port, if it is a single host: answers do not go to several.
fn of_one(name: &LinkName) -> Option<Station> {
    Some(Station {
        interface: name.sll_ifindex.cast_unsigned(),
        hardware: Some(hardware_of(name)).filter(|it| !is_group(*it)),
        port: 0,
    })
    .filter(|it| it.hardware.is_some())
}

fn sock_addr(name: &LinkName) -> SockAddr {
    let init = |storage: *mut socket2::SockAddrStorage, len: *mut libc::socklen_t| {
        // SAFETY: the storage is larger than any address, zeroed, and aligned for each.
        unsafe {
            storage.cast::<LinkName>().write(*name);
            *len = size_of::<LinkName>() as libc::socklen_t;
        }
        Ok(())
    };
    // SAFETY: `init` writes an address of its family, and its length.
    let made: io::Result<((), SockAddr)> = unsafe { SockAddr::try_init(init) };
    made.map(|(_, made)| made)
        .unwrap_or_else(|_| unreachable!("it does not fail"))
}

fn read_link_name(address: &SockAddr) -> Option<LinkName> {
    let whole = address.len() as usize >= std::mem::offset_of!(LinkName, sll_addr) + 6;
    if address.family() as i32 != libc::AF_PACKET || !whole {
        return None;
    }
    // SAFETY: the family determines the type. All its bytes are initialised, because the storage is larger, and it
    // consists of integers.
    Some(unsafe { address.as_ptr().cast::<LinkName>().read() })
}

/// Asks about the interface with that index, in the socket's network namespace, whatever the thread's is.
fn ask(socket: &Socket, request: libc::Ioctl, ask: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the requests here read and write an ifreq, which lives across the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), request, std::ptr::from_mut(ask)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn named(socket: &Socket, interface: u32) -> io::Result<libc::ifreq> {
    // SAFETY: all fields of ifreq are integers and pointers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_ifindex = interface.cast_signed();
    ask(socket, libc::SIOCGIFNAME as libc::Ioctl, &mut request)?;
    Ok(request)
}

/// The present name of the interface with that index.
pub(crate) fn name_of(socket: &Socket, interface: u32) -> io::Result<String> {
    let name = named(socket, interface)?.ifr_name;
    let bytes = name.iter().take_while(|&&it| it != 0);
    let bytes: Vec<u8> = bytes.map(|it| it.to_ne_bytes()[0]).collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Longest datagram in a frame of the interface.
pub(crate) fn path_datagram(socket: &Socket, interface: u32) -> io::Result<usize> {
    let mut request = named(socket, interface)?;
    ask(socket, libc::SIOCGIFMTU as libc::Ioctl, &mut request)?;
    // SAFETY: the request filled this field.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    let stu = Encapsulation::Ethernet.max_stu(usize::try_from(mtu).unwrap_or(0));
    Ok(stu + zerolane_wire::HEADER_LEN)
}

/// Whether the interface with that index is gone.
pub(crate) fn is_gone(socket: &Socket, interface: u32) -> bool {
    name_of(socket, interface).is_err_and(|it| it.raw_os_error() == Some(libc::ENODEV))
}

/// A frame for a listener.
pub(crate) enum ListenerFrame {
    /// A datagram, and its sender.
    Datagram(Vec<u8>, Station),
    /// A well-formed question for a name, or an answer to one, and its sender.
    Discovery(Vec<u8>, Station),
    /// A frame that is not for this host, is in a VLAN, or is badly padded.
    Foreign,
}

/// The next frame at `socket`. `None` if there is none.
///
/// # Errors
/// Those of the socket.
pub(crate) fn receive(socket: &Socket) -> io::Result<Option<ListenerFrame>> {
    let mut buffer = Vec::with_capacity(SHOWN);
    let (len, from) = match socket.recv_from(buffer.spare_capacity_mut()) {
        Ok(received) => received,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    };
    // SAFETY: the call wrote `len` bytes of the capacity.
    unsafe { buffer.set_len(len) };
    let name = read_link_name(&from);
    if Discovery::is(&buffer) {
        let from = name.filter(|it| is_ours(it) || is_for_all(it));
        let from = from
            .and_then(|it| of_one(&it))
            .filter(|_| Discovery::parse(&buffer).is_ok());
        return Ok(Some(match from {
            Some(from) => ListenerFrame::Discovery(buffer, from),
            None => ListenerFrame::Foreign,
        }));
    }
    let Some(from) = name.filter(is_ours) else {
        return Ok(Some(ListenerFrame::Foreign));
    };
    match padded(&buffer) {
        Ok(None) => {}
        Ok(Some((first, len))) => {
            buffer[0] = first;
            buffer.truncate(len);
        }
        Err(_) => return Ok(Some(ListenerFrame::Foreign)),
    }
    let Some(port) = buffer.get(S_PORT).and_then(|it| it.try_into().ok()) else {
        return Ok(Some(ListenerFrame::Foreign));
    };
    let station = Station {
        interface: from.sll_ifindex.cast_unsigned(),
        hardware: Some(hardware_of(&from)),
        port: u16::from_be_bytes(port),
    };
    Ok(Some(ListenerFrame::Datagram(buffer, station)))
}

/// Sends a datagram to an unauthenticated peer.
///
/// # Errors
/// Those of the socket.
pub(crate) fn send(socket: &Socket, bytes: &[u8], to: Station) -> io::Result<usize> {
    let hardware = to.hardware.ok_or(NoEthernet::NoAddress)?;
    let to = sock_addr(&link_name(to.interface, hardware));
    match pad_frame(bytes) {
        Some(padded) => socket.send_to(&padded, &to),
        None => socket.send_to(bytes, &to),
    }
}
