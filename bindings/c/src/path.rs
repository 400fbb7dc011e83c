//! Adds, removes and lists the paths of a connection.

use crate::connection::zl_connection;
use crate::options::{change, zl_options};
use crate::pointer::{Outputs, handle, text};
use crate::status::{Failure, guard, zl_status};
use std::ffi::c_char;
use zerolane::PathId;
use zerolane::counters::{PathLife, PathState};
use zerolane::options::{MAX_PATHS, PathAddresses};

/// State of a path.
#[repr(u32)]
#[derive(Clone, Copy)]
pub enum zl_path_life {
    /// The path is being probed for the first time.
    ZL_PATH_JOINING = 1,
    /// The path answers, and its datagram size is being probed.
    ZL_PATH_SIZING = 2,
    /// The path carries payload.
    ZL_PATH_USABLE = 3,
    /// The path does not answer.
    ZL_PATH_SUSPECT = 4,
}

use zl_path_life::*;

/// State and counters of a path. Later versions may add fields in place of `reserved`.
#[repr(C)]
pub struct zl_path {
    /// The path's number; 0 is the first path.
    pub index: u32,
    /// A value of enum zl_path_life.
    pub life: u32,
    /// Smoothed round-trip time in microseconds; 0: not measured.
    pub rtt_us: u64,
    /// Payload bytes sent, repeats included.
    pub bytes_sent: u64,
    /// Payload bytes lost, as the receiver reported.
    pub bytes_lost: u64,
    /// Payload bytes that it brought for the first time. Counted if both ends allow several
    /// paths.
    pub bytes_received: u64,
    /// Sending rate of payload in bytes per second; 0: unlimited.
    pub pace: u64,
    /// 0.
    pub reserved: [u64; 4],
}

impl zl_path {
    /// `None` if the path does not exist.
    fn of((id, state): (PathId, PathState)) -> Option<zl_path> {
        let life = match state.life {
            PathLife::Absent => return None,
            PathLife::Joining => ZL_PATH_JOINING,
            PathLife::Sizing => ZL_PATH_SIZING,
            PathLife::Usable => ZL_PATH_USABLE,
            PathLife::Suspect => ZL_PATH_SUSPECT,
        };
        Some(zl_path {
            index: id.get().into(),
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

/// Adds a path to connections that are opened with `options`, besides the first; up to 7 calls.
/// `path` is "LOCAL=PEER", from an address of this host to one of the peer, such as
/// "192.0.2.1=192.0.2.2". Omitted parts, including ports, are those of the first path: "=" is a
/// path from another port. The peer must allow as many paths (ZL_OPTION_PATHS) and listen at
/// that address. If a path cannot be opened, the connection keeps the others.
///
/// "ether:IFACE=ether:IFACE/MAC" is a path over raw Ethernet, from an interface of this host to
/// a hardware address of the peer on its segment. It needs CAP_NET_RAW, and a peer with
/// ZL_OPTION_ETHERNET_PATHS or ZL_LANE_ETHERNET. ZL_ERROR_ARGUMENT if the interface does not
/// exist. A path over UDP of a connection over raw Ethernet names the peer's address, and the
/// peer must have ZL_OPTION_UDP_PATHS.
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
            let links = &mut settings.options.paths.links;
            if links.len() + 1 >= usize::from(MAX_PATHS) {
                return Err(Failure::argument(format!(
                    "a connection has at most {MAX_PATHS} paths, including the first"
                )));
            }
            links.push(path);
            Ok(())
        })
    })
}

/// Adds a path to an open connection: see zl_options_add_path. ZL_ERROR_ARGUMENT if the
/// connection's lane is neither UDP nor raw Ethernet, or neither ZL_OPTION_PATHS nor
/// zl_options_add_path asked for several paths. zl_paths_read shows its state.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_add_path(
    connection: *const zl_connection,
    path: *const c_char,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and texts.
        let (connection, path) = unsafe { (handle(connection, "connection")?, addresses(path)?) };
        match connection.ask(move |it| Ok(it.add_path(path)))? {
            true => Ok(zl_status::ZL_OK),
            false => Err(Failure::argument(
                "this connection has one path: for several, use UDP or raw Ethernet, and set ZL_OPTION_PATHS",
            )),
        }
    })
}

/// Stops using path `index`. Its payload in flight is sent over other paths. ZL_ERROR_ARGUMENT
/// if `index` is 0; a path that does not exist does nothing.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_remove_path(connection: *const zl_connection, index: u32) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let connection = unsafe { handle(connection, "connection") }?;
        let path = u8::try_from(index).ok().and_then(PathId::new);
        if path == Some(PathId::FIRST) {
            return Err(Failure::argument("the first path cannot be removed"));
        }
        connection.ask(move |it| {
            if let Some(path) = path {
                it.remove_path(path);
            }
            Ok(())
        })?;
        Ok(zl_status::ZL_OK)
    })
}

/// Writes up to `capacity` of the connection's paths, at most 8 in all, and their number to
/// `count`.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_paths_read(
    connection: *const zl_connection,
    paths: *mut zl_path,
    capacity: usize,
    count: *mut usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (connection, outputs) = unsafe {
            (
                handle(connection, "connection")?,
                Outputs::new(paths, capacity, "paths", count)?,
            )
        };
        let paths = connection.ask(|it| Ok(it.paths()))?;
        Ok(outputs.set(paths.into_iter().filter_map(zl_path::of)))
    })
}

/// # Safety
/// As for [`text`].
unsafe fn addresses(path: *const c_char) -> Result<PathAddresses, Failure> {
    // SAFETY: the caller's promise.
    let path = unsafe { text(path, "path") }?;
    let path = path.parse::<PathAddresses>();
    path.map_err(|why| Failure::argument(why.to_string()))
}
