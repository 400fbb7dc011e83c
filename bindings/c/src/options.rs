//! Sets options of endpoints and connections.

use crate::pointer::{Output, free, give, handle, text};
use crate::status::{Failure, guard, zl_status};
use std::collections::HashSet;
use std::ffi::c_char;
use std::sync::Mutex;
use std::time::Duration;
use zerolane::Options;
use zerolane::counters::LaneKind;
use zerolane::options::{LaneChoice, RendezvousName};
use zerolane::security::{Mode, PublicKey};

/// Settings of connections. The defaults suit a local network, encrypt, and trust any peer.
pub struct zl_options(Mutex<Settings>);

#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) options: Options,
    /// The keys of trusted peers; if empty, any peer is trusted.
    pub(crate) trusted: HashSet<PublicKey>,
}

/// Options for zl_options_set.
#[repr(u32)]
#[derive(Clone, Copy)]
pub enum zl_option {
    /// 1: fail rather than copy payload in user space. Default 0.
    ZL_OPTION_STRICT = 1,
    /// 0: use no UDP segmentation offload. Default 1.
    ZL_OPTION_GSO = 2,
    /// 0: use no UDP receive offload. Default 1.
    ZL_OPTION_GRO = 3,
    /// 1: checksum payload in addition to UDP. Default 0.
    ZL_OPTION_CHECKSUM = 4,
    /// Receive socket buffer to request, in bytes, 4 KiB to 1 GiB. Default 8 MiB.
    ZL_OPTION_RECEIVE_BUFFER = 5,
    /// Most bytes granted to the peer ahead, 4 KiB to 1 GiB. Default 128 MiB.
    ZL_OPTION_MAX_IN_FLIGHT = 6,
    /// Microseconds to poll for the next datagram before sleeping. Default 50.
    ZL_OPTION_SPIN_US = 7,
    /// Milliseconds after which connecting fails, at least 1. Default 5000.
    ZL_OPTION_CONNECT_TIMEOUT_MS = 8,
    /// Milliseconds without an answer after which the peer counts as dead, at least 1. Default
    /// 15000.
    ZL_OPTION_IDLE_TIMEOUT_MS = 9,
    /// Transfers that the peer may announce before the first is answered, 1 to 1024. Default
    /// 64.
    ZL_OPTION_SLOTS = 10,
    /// 1: neither encrypt nor authenticate; the peer must set the same. A host on the path can
    /// read and change everything. Default 0.
    ZL_OPTION_PLAIN = 11,
    /// 1: prove identities and protect all content from changes, but do not encrypt; the peer
    /// must set the same. A host on the path can read everything. Default 0. Of this and
    /// ZL_OPTION_PLAIN, the last one set counts.
    ZL_OPTION_AUTHENTICATED = 12,
    /// The connection's lane, a value of enum zl_lane. Default ZL_LANE_BEST.
    ZL_OPTION_LANE = 13,
    /// Most paths of a connection over UDP or raw Ethernet at a time, 1 to 8; the smaller of
    /// both ends' values applies. Default 1, or as many as zl_options_add_path needs. Not with
    /// zl_options_set_device.
    ZL_OPTION_PATHS = 14,
    /// 1: at this end, each path but the first has a thread, so that one connection uses more
    /// than one core. Default 0.
    ZL_OPTION_PATH_THREADS = 15,
    /// 1: the peer may add paths over raw Ethernet, at any interface, to a connection over UDP
    /// that an endpoint accepts, if ZL_OPTION_PATHS is at least 2. Needs CAP_NET_RAW; otherwise
    /// zl_endpoint_bind fails. Default 0. An endpoint of ZL_LANE_ETHERNET accepts such paths
    /// without it.
    ZL_OPTION_ETHERNET_PATHS = 16,
    /// 1: the peer may add paths over UDP, at any address of the host and the UDP port with the
    /// endpoint's number, to a connection over raw Ethernet that an endpoint accepts, if
    /// ZL_OPTION_PATHS is at least 2. Default 0.
    ZL_OPTION_UDP_PATHS = 17,
    /// 1: ask the peer ten times an idle timeout whether it lives, also while no request
    /// depends on it, so that an idle connection over a network ends when its peer has died. A
    /// peer whose program makes no call for the idle timeout counts as dead, unless a worker's
    /// thread answers for it. Default 0.
    ZL_OPTION_KEEP_ALIVE = 18,
    /// Connections that an endpoint accepts before zl_endpoint_accept does, in a thread of its
    /// own, 0 to 65535; further clients wait. 0: no thread, and clients wait for
    /// zl_endpoint_accept. Has no effect on a worker's endpoints. Default 64.
    ZL_OPTION_BACKLOG = 19,
    /// 1: an endpoint accepts nothing by itself: zl_endpoint_incoming, or ZL_EVENT_REQUESTED of a
    /// worker, shows each request for a connection, to accept or refuse it. Default 0.
    ZL_OPTION_ASKS = 20,
}

use zl_option::*;

/// The lane of a connection.
#[repr(u32)]
#[derive(Clone, Copy)]
pub enum zl_lane {
    /// UDP, also to processes of this host.
    ZL_LANE_UDP = 0,
    /// Shared memory to processes of this host and user that listen with this value or the
    /// next, otherwise UDP. Shared memory is not encrypted: the kernel keeps other users out.
    ZL_LANE_BEST = 1,
    /// Shared memory, or connecting fails. An endpoint accepts no other lane.
    ZL_LANE_SHARED_MEMORY = 2,
    /// Raw Ethernet between hosts of one segment, or connecting fails; needs CAP_NET_RAW.
    /// Addresses are "ether:IFACE/MAC:PORT", and "ether:IFACE:PORT" to listen. zl_peer_addr and
    /// the like return them as link-local IPv6 addresses with a scope:
    /// "[fe80::ff:fe00:1%2]:7411".
    ZL_LANE_ETHERNET = 3,
    /// IP protocol 118, without UDP, or connecting fails; needs CAP_NET_RAW. Ports are those of
    /// the protocol's header.
    ZL_LANE_IP118 = 4,
}

use zl_lane::*;

impl From<LaneKind> for zl_lane {
    fn from(kind: LaneKind) -> zl_lane {
        match kind {
            LaneKind::Udp => ZL_LANE_UDP,
            LaneKind::SharedMemory => ZL_LANE_SHARED_MEMORY,
            LaneKind::Ethernet => ZL_LANE_ETHERNET,
            LaneKind::Ip118 => ZL_LANE_IP118,
        }
    }
}

/// A copy of `options`, or the defaults if null.
///
/// # Safety
/// As for [`handle`].
pub(crate) unsafe fn read(options: *const zl_options) -> Result<Options, Failure> {
    if options.is_null() {
        return Ok(Options::default());
    }
    // SAFETY: the caller's promise.
    let options = unsafe { handle(options, "options") }?;
    let settings = options.0.lock().map_err(|_| poisoned())?;
    if settings.options.security.mode == Mode::Plain && !settings.trusted.is_empty() {
        return Err(Failure::argument(
            "plain connections prove no key: trust none, or choose another protection",
        ));
    }
    Ok(settings.options.clone())
}

/// Changes settings under their lock.
pub(crate) fn change(
    options: &zl_options,
    body: impl FnOnce(&mut Settings) -> Result<(), Failure>,
) -> Result<zl_status, Failure> {
    body(&mut *options.0.lock().map_err(|_| poisoned())?)?;
    Ok(zl_status::ZL_OK)
}

fn poisoned() -> Failure {
    Failure::new(zl_status::ZL_ERROR_INTERNAL, "an earlier call panicked")
}

/// Makes settings with all defaults. Free them with zl_options_free.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_options_new(options: *mut *mut zl_options) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about outputs.
        let output = unsafe { Output::new(options, "options") }?;
        output.set(give(zl_options(Mutex::default())));
        Ok(zl_status::ZL_OK)
    })
}

/// Sets `option`, a value of enum zl_option, to `value`. ZL_ERROR_ARGUMENT if the option is
/// unknown or the value out of range.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_options_set(
    options: *mut zl_options,
    option: u32,
    value: u64,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let options = unsafe { handle(options, "options") }?;
        change(options, |settings| {
            let mut changed = settings.options.clone();
            set(&mut changed, option, value)?;
            let checked = changed.check();
            checked.map_err(|why| Failure::argument(why.to_string()))?;
            settings.options = changed;
            Ok(())
        })
    })
}

/// Makes both ends of shared memory find each other by `name` instead of the address: for
/// containers of one kernel with separate networks, one rendezvous directory and one user.
/// `name` has 1 to 63 letters, digits, '-', '_' and '.', and starts with a letter or a digit.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_options_rendezvous(
    options: *mut zl_options,
    name: *const c_char,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and texts.
        let (options, name) = unsafe { (handle(options, "options")?, text(name, "name")?) };
        let name: RendezvousName = name
            .parse()
            .map_err(|why| Failure::argument(format!("rendezvous name: {why}")))?;
        change(options, |settings| {
            settings.options.lane.rendezvous = Some(name);
            Ok(())
        })
    })
}

fn set(options: &mut Options, option: u32, value: u64) -> Result<(), Failure> {
    const STRICT: u32 = ZL_OPTION_STRICT as u32;
    const GSO: u32 = ZL_OPTION_GSO as u32;
    const GRO: u32 = ZL_OPTION_GRO as u32;
    const CHECKSUM: u32 = ZL_OPTION_CHECKSUM as u32;
    const RECEIVE_BUFFER: u32 = ZL_OPTION_RECEIVE_BUFFER as u32;
    const MAX_IN_FLIGHT: u32 = ZL_OPTION_MAX_IN_FLIGHT as u32;
    const SPIN_US: u32 = ZL_OPTION_SPIN_US as u32;
    const CONNECT_TIMEOUT_MS: u32 = ZL_OPTION_CONNECT_TIMEOUT_MS as u32;
    const IDLE_TIMEOUT_MS: u32 = ZL_OPTION_IDLE_TIMEOUT_MS as u32;
    const SLOTS: u32 = ZL_OPTION_SLOTS as u32;
    const PLAIN: u32 = ZL_OPTION_PLAIN as u32;
    const AUTHENTICATED: u32 = ZL_OPTION_AUTHENTICATED as u32;
    const LANE: u32 = ZL_OPTION_LANE as u32;
    const PATHS: u32 = ZL_OPTION_PATHS as u32;
    const PATH_THREADS: u32 = ZL_OPTION_PATH_THREADS as u32;
    const ETHERNET_PATHS: u32 = ZL_OPTION_ETHERNET_PATHS as u32;
    const UDP_PATHS: u32 = ZL_OPTION_UDP_PATHS as u32;
    const KEEP_ALIVE: u32 = ZL_OPTION_KEEP_ALIVE as u32;
    const BACKLOG: u32 = ZL_OPTION_BACKLOG as u32;
    const ASKS: u32 = ZL_OPTION_ASKS as u32;
    match option {
        STRICT => options.strict = switch(value)?,
        GSO => options.datagrams.gso = switch(value)?,
        GRO => options.datagrams.gro = switch(value)?,
        CHECKSUM => options.datagrams.checksum = switch(value)?,
        RECEIVE_BUFFER => options.flow.receive_buffer = fit(value)?,
        MAX_IN_FLIGHT => options.flow.max_in_flight = fit(value)?,
        SPIN_US => options.times.spin = Duration::from_micros(u64::from(fit::<u32>(value)?)),
        CONNECT_TIMEOUT_MS => options.times.connect = milliseconds(value)?,
        IDLE_TIMEOUT_MS => options.times.idle = milliseconds(value)?,
        SLOTS => options.flow.slots = fit(value)?,
        PLAIN => options.security.mode = mode(Mode::Plain, value)?,
        AUTHENTICATED => options.security.mode = mode(Mode::Authenticated, value)?,
        LANE => options.lane.choice = lane(value)?,
        PATHS => options.paths.most = fit(value)?,
        PATH_THREADS => options.paths.threads = switch(value)?.into(),
        ETHERNET_PATHS => options.paths.ethernet = switch(value)?,
        UDP_PATHS => options.paths.udp = switch(value)?,
        KEEP_ALIVE => options.times.keep_alive = switch(value)?,
        BACKLOG => options.listen.backlog = fit(value)?,
        ASKS => options.listen.asks = switch(value)?,
        _ => return Err(Failure::argument(format!("unknown option {option}"))),
    }
    Ok(())
}

fn mode(other: Mode, value: u64) -> Result<Mode, Failure> {
    Ok(match switch(value)? {
        true => other,
        false => Mode::Encrypted,
    })
}

fn lane(value: u64) -> Result<LaneChoice, Failure> {
    const UDP: u64 = ZL_LANE_UDP as u64;
    const BEST: u64 = ZL_LANE_BEST as u64;
    const SHARED_MEMORY: u64 = ZL_LANE_SHARED_MEMORY as u64;
    const ETHERNET: u64 = ZL_LANE_ETHERNET as u64;
    const IP118: u64 = ZL_LANE_IP118 as u64;
    match value {
        UDP => Ok(LaneChoice::Udp),
        BEST => Ok(LaneChoice::Best),
        SHARED_MEMORY => Ok(LaneChoice::SharedMemory),
        ETHERNET => Ok(LaneChoice::Ethernet),
        IP118 => Ok(LaneChoice::Ip118),
        _ => Err(Failure::argument(format!("unknown lane {value}"))),
    }
}

fn switch(value: u64) -> Result<bool, Failure> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Failure::argument(format!("{value} is neither 0 nor 1"))),
    }
}

fn fit<T: TryFrom<u64>>(value: u64) -> Result<T, Failure> {
    T::try_from(value).map_err(|_| Failure::argument(format!("{value} is out of range")))
}

fn milliseconds(value: u64) -> Result<Duration, Failure> {
    Ok(Duration::from_millis(u64::from(fit::<u32>(value)?)))
}

/// Frees the settings. Null does nothing.
///
/// Threads: the last that uses them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_options_free(options: *mut zl_options) {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { free(options) };
        Ok(zl_status::ZL_OK)
    });
}
