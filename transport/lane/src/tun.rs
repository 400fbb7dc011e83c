//! Opens a TUN interface, whose packets a program reads and writes with the offload header of virtio in front.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

const SET_INTERFACE: libc::Ioctl = 0x4004_54ca;
const GET_INTERFACE: libc::Ioctl = 0x8004_54d2u32 as libc::Ioctl;
const SET_OFFLOAD: libc::Ioctl = 0x4004_54d0;
const SET_HEADER_LEN: libc::Ioctl = 0x4004_54d8;
const SET_LITTLE_ENDIAN: libc::Ioctl = 0x4004_54dc;

const IFF_TUN: u16 = 0x0001;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;

const CHECKSUM: libc::c_ulong = 0x01;
const TSO4: libc::c_ulong = 0x02;
const TSO6: libc::c_ulong = 0x04;
const TSO_ECN: libc::c_ulong = 0x08;
const USO: libc::c_ulong = 0x20 | 0x40;

/// The longest name of an interface, bytes.
const MAX_NAME: usize = libc::IFNAMSIZ - 1;

/// What the kernel leaves to the other end of the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunOffload {
    /// Nothing: every packet is at most as long as the MTU, and has checksums.
    None,
    /// Checksums, and cutting of TCP packets.
    Tcp,
    /// Also cutting of UDP packets (Linux 6.2).
    TcpAndUdp,
}

impl TunOffload {
    const fn bits(self) -> libc::c_ulong {
        let tcp = CHECKSUM | TSO4 | TSO6 | TSO_ECN;
        match self {
            TunOffload::None => 0,
            TunOffload::Tcp => tcp,
            TunOffload::TcpAndUdp => tcp | USO,
        }
    }
}

/// A TUN interface, which exists as long as this value. Reads and writes do not block; each is one packet, with a
/// header in front.
#[derive(Debug)]
pub struct TunDevice {
    file: File,
    name: String,
    offload: TunOffload,
}

impl TunDevice {
    /// Bytes of the header in front of each packet: `virtio_net_hdr`, little-endian.
    pub const VNET_HEADER_LEN: usize = 10;

    /// Makes interface `name`, with as much of `offload` as the kernel has.
    ///
    /// # Errors
    /// The name is empty or has more than 15 bytes (`InvalidInput`); an interface has it (`ResourceBusy`); there is no
    /// TUN device here (`NotFound`); or CAP_NET_ADMIN is missing (`PermissionDenied`).
    pub fn open(name: &str, offload: TunOffload) -> io::Result<TunDevice> {
        if name.is_empty() || name.len() > MAX_NAME || name.bytes().any(|it| it == 0 || it == b'/')
        {
            let why = "the name of an interface has 1 to 15 bytes, and no slash";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")?;
        let mut request = [0u8; 40];
        request[..name.len()].copy_from_slice(name.as_bytes());
        let flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
        request[libc::IFNAMSIZ..libc::IFNAMSIZ + 2].copy_from_slice(&flags.to_ne_bytes());
        // SAFETY: the request is a whole `struct ifreq`, and outlives the call.
        check(unsafe { libc::ioctl(file.as_raw_fd(), SET_INTERFACE, request.as_mut_ptr()) })?;
        TunDevice::prepared(file, name.to_owned(), offload)
    }

    /// Takes over an interface that another program made, with `IFF_TUN`, `IFF_NO_PI` and `IFF_VNET_HDR`, and handed to
    /// this process as descriptor `number`. That stays open; its file does not block any more. Needs no right.
    ///
    /// # Errors
    /// The descriptor is not open, or not that of such an interface (`InvalidInput`).
    pub fn adopt(number: RawFd, offload: TunOffload) -> io::Result<TunDevice> {
        // SAFETY: the call touches no memory of ours, whatever the number refers to.
        let own = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
        check(own)?;
        // SAFETY: the kernel has just made the descriptor, and nothing else owns it.
        let file = unsafe { File::from_raw_fd(own) };
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
        let mut answer = [0u8; 40];
        // SAFETY: the answer is a whole `struct ifreq`, and outlives the call.
        check(unsafe { libc::ioctl(own, GET_INTERFACE, answer.as_mut_ptr()) })
            .map_err(|_| wrong("it is no TUN interface"))?;
        let (name, rest) = answer.split_at(libc::IFNAMSIZ);
        let flags = u16::from_ne_bytes([rest[0], rest[1]]);
        let needed = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
        if flags & needed != needed {
            return Err(wrong(
                "its interface lacks IFF_TUN, IFF_NO_PI or IFF_VNET_HDR",
            ));
        }
        let name = name.split(|&it| it == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(name).into_owned();
        // SAFETY: these calls take numbers.
        check(unsafe {
            let now = libc::fcntl(own, libc::F_GETFL);
            libc::fcntl(own, libc::F_SETFL, now | libc::O_NONBLOCK)
        })?;
        TunDevice::prepared(file, name, offload)
    }

    /// Agrees with the kernel on the header and on what it leaves to the other end.
    fn prepared(file: File, name: String, offload: TunOffload) -> io::Result<TunDevice> {
        for (what, value) in [
            (SET_HEADER_LEN, Self::VNET_HEADER_LEN as libc::c_int),
            (SET_LITTLE_ENDIAN, 1),
        ] {
            // SAFETY: the value outlives the call, which only reads it.
            check(unsafe { libc::ioctl(file.as_raw_fd(), what, &raw const value) })?;
        }
        let less: &[TunOffload] = match offload {
            TunOffload::None => &[TunOffload::None],
            TunOffload::Tcp => &[TunOffload::Tcp, TunOffload::None],
            TunOffload::TcpAndUdp => &[TunOffload::TcpAndUdp, TunOffload::Tcp, TunOffload::None],
        };
        let set = |it: &&TunOffload| {
            // SAFETY: this call takes a number.
            check(unsafe { libc::ioctl(file.as_raw_fd(), SET_OFFLOAD, it.bits()) }).is_ok()
        };
        let offload = less.iter().find(set).copied().unwrap_or(TunOffload::None);
        Ok(TunDevice {
            file,
            name,
            offload,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the kernel leaves to the other end.
    pub fn offload(&self) -> TunOffload {
        self.offload
    }

    /// Reads the next packet that the host sends, with its header, into `into`. Returns its length; `None`: there is
    /// none.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn read(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match io::Read::read(&mut &self.file, into) {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Hands a packet with its header to the host.
    ///
    /// # Errors
    /// The kernel refuses it, or has no memory.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        io::Write::write(&mut &self.file, packet).map(drop)
    }
}

impl AsFd for TunDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn adopt__what_is_no_interface() {
        let null = File::open("/dev/null").expect("is there");
        let refused = TunDevice::adopt(null.as_raw_fd(), TunOffload::None).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        let closed = TunDevice::adopt(RawFd::MAX, TunOffload::None).unwrap_err();
        assert_eq!(closed.raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn open__names_that_no_interface_has() {
        for name in ["", "sixteen-letters-", "a/b", "a\0b"] {
            let refused = TunDevice::open(name, TunOffload::None);
            assert_eq!(
                refused.unwrap_err().kind(),
                io::ErrorKind::InvalidInput,
                "{name}"
            );
        }
    }
}
