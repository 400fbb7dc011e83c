//! Paths of a connection that may have several.

use crate::connection::{with, zl_connection};
use crate::options::{change, zl_options};
use crate::pointer::{Outputs, handle, text};
use crate::status::{Failure, guard, zl_status};
use std::ffi::c_char;
use zerolane::counters::{PathLife, PathState};
use zerolane::options::{MAX_PATHS, PathAddresses};

/// Where a path stands.
#[repr(u32)]
#[derive(Clone, Copy)]
pub enum zl_path_life {
    /// The peer is asked whether it is there.
    ZL_PATH_JOINING = 1,
    /// It is, and it is found out how large its datagrams may be.
    ZL_PATH_SIZING = 2,
    /// It carries payload.
    ZL_PATH_USABLE = 3,
    /// It does not answer.
    ZL_PATH_SUSPECT = 4,
}

use zl_path_life::*;

/// A path of a connection, and what it did. Fields may be added at the end, in place of `reserved`.
#[repr(C)]
pub struct zl_path {
    /// Its number; that of the first is 0.
    pub index: u32,
    /// Where it stands, a value of enum zl_path_life.
    pub life: u32,
    /// Smoothed round-trip time, microseconds; 0: none was measured.
    pub rtt_us: u64,
    /// Payload bytes that left by it, repeats included.
    pub bytes_sent: u64,
    /// Payload bytes that it lost, as far as the receiver said so.
    pub bytes_lost: u64,
    /// Payload bytes that came by it for the first time. Counted where both ends take several paths.
    pub bytes_received: u64,
    /// Bytes a second at which payload leaves; 0: as fast as it can.
    pub pace: u64,
    /// 0.
    pub reserved: [u64; 4],
}

impl zl_path {
    /// `None` if there is none.
    fn of((index, state): (usize, PathState)) -> Option<zl_path> {
        let life = match state.life {
            PathLife::Absent => return None,
            PathLife::Joining => ZL_PATH_JOINING,
            PathLife::Sizing => ZL_PATH_SIZING,
            PathLife::Usable => ZL_PATH_USABLE,
            PathLife::Suspect => ZL_PATH_SUSPECT,
        };
        Some(zl_path {
            index: index as u32,
            life: life as u32,
            rtt_us: state.rtt.map_or(0, |it| it.as_micros() as u64),
            bytes_sent: state.bytes_sent,
            bytes_lost: state.bytes_lost,
            bytes_received: state.bytes_received,
            pace: state.pace.unwrap_or(0),
            reserved: [0; 4],
        })
    }
}

/// Adds a path to the connections that are opened with `options`, beside the first: `path` is "LOCAL=PEER", from this
/// address of this host to that one of the peer, such as "192.0.2.1=192.0.2.2". What is left out, a port as well, is as
/// for the first path: "=" is one from another port. The peer has to take as many (ZL_OPTION_PATHS), and to listen at
/// that address. A path that cannot be opened leaves the connection with the others. Each call adds one, up to 7.
///
/// "ether:IFACE=ether:IFACE/MAC" is one over raw Ethernet, from this interface of this host to that hardware address of the
/// peer's on its segment; the peer has to take such (ZL_OPTION_ETHERNET_PATHS), and this end needs CAP_NET_RAW. An interface that
/// is not there is ZL_ERROR_ARGUMENT. Of a connection over raw Ethernet (ZL_LANE_ETHERNET) the peer takes such by itself; one over
/// UDP beside it names an address of the peer's, which has to take such (ZL_OPTION_UDP_PATHS).
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_options_add_path(
    options: *mut zl_options,
    path: *const c_char,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and texts.
        let (options, path) = unsafe { (handle(options, "options")?, addresses(path)?) };
        change(options, |settings| {
            let links = &mut settings.options.links;
            if links.len() + 1 >= usize::from(MAX_PATHS) {
                return Err(Failure::argument(format!(
                    "a connection has {MAX_PATHS} paths at most, the first included"
                )));
            }
            links.push(path);
            Ok(())
        })
    })
}

/// Adds a path to an open connection, as zl_options_add_path has it. ZL_ERROR_ARGUMENT if it can have none: what carries
/// it is neither UDP nor raw Ethernet, or neither ZL_OPTION_PATHS nor zl_options_add_path asked for several. zl_paths_read tells
/// what becomes of it.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_add_path(
    connection: *const zl_connection,
    path: *const c_char,
) -> zl_status {
    // SAFETY: C's promises about handles and texts.
    unsafe {
        with(connection, |connection| {
            match connection.add_path(addresses(path)?) {
                true => Ok(zl_status::ZL_OK),
                false => Err(Failure::argument(
                    "this connection has one path: several are over UDP or raw Ethernet, and asked for by ZL_OPTION_PATHS",
                )),
            }
        })
    }
}

/// Uses path `index`, which is not 0, no more: what it had in flight goes by others. One that there is not is none.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_remove_path(connection: *const zl_connection, index: u32) -> zl_status {
    // SAFETY: C's promises about handles.
    unsafe {
        with(connection, |connection| match index {
            0 => Err(Failure::argument("the first path is not removed")),
            _ => {
                connection.remove_path(index as usize);
                Ok(zl_status::ZL_OK)
            }
        })
    }
}

/// Tells the paths of a connection, up to `capacity` of them (there are at most 8), and in `count` how many were told.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_paths_read(
    connection: *const zl_connection,
    paths: *mut zl_path,
    capacity: usize,
    count: *mut usize,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        with(connection, |connection| {
            let outputs = Outputs::new(paths, capacity, "paths", count)?;
            Ok(outputs.set(connection.paths().into_iter().filter_map(zl_path::of)))
        })
    }
}

/// # Safety
/// As [`text`].
unsafe fn addresses(path: *const c_char) -> Result<PathAddresses, Failure> {
    // SAFETY: the caller's promise.
    let path = unsafe { text(path, "path") }?;
    let path = path.parse::<PathAddresses>();
    path.map_err(|why| Failure::argument(why.to_string()))
}
