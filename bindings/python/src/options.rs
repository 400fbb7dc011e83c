//! Settings of endpoints and connections.

use crate::device::EthernetDevice;
use crate::{errors, path};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use zerolane::Security;
use zerolane::keys::identity;
use zerolane::options::{LaneChoice, PathThreads, RendezvousName};
use zerolane::security::PublicKey;

/// Settings of connections; the defaults suit a local network. Times are in seconds, sizes in bytes.
///
/// Connections are encrypted. `identity` is the file of the key by which peers know this end, as
/// `zerolane keygen` makes it, and made if there is none. Without `identity`, each connection or endpoint
/// makes a key. `trust` has the keys ("zl:...") of the peers to speak to; without it, any peer. `plain`
/// turns protection off, if the peer does so too: then a host on the path can read and change everything.
///
/// `lane` is "best" (the default: shared memory to processes of this host and user, else UDP), "udp",
/// "shared_memory" (or an error), or "ethernet" (raw Ethernet between hosts of one segment, or an error; addresses are
/// "ether:IFACE/MAC:PORT", "ether:IFACE:PORT" to listen on; `device`, an EthernetDevice, has it go past the kernel's
/// network stack), or "ip118" (IP protocol 118 without UDP, or an error). Nothing is encrypted in shared memory: the kernel keeps others out.
///
/// `paths` is how many paths a connection over UDP or raw Ethernet may have, 1 to 8, the lesser of both ends' counts. `links` has the paths that
/// a connection opened from here gets beside the first, each "LOCAL=PEER": from this address of this host to that one of the
/// peer. What is left out, a port as well, is as for the first path. "ether:IFACE=ether:IFACE/MAC" is one over raw Ethernet, from
/// this interface of this host to that hardware address of the peer's; it needs CAP_NET_RAW, and a peer whose endpoint has
/// `ethernet_paths`, which needs it as well, or `lane` "ethernet". Over raw Ethernet a path over UDP names an address of the peer's,
/// whose endpoint has `udp_paths`; and there is one path with a `device`. `path_threads` gives each path beside the first
/// a thread of its own at this end.
///
/// `rendezvous` is the name, in place of the address, by which both ends meet in shared memory: for containers of one kernel with
/// networks of their own and one directory of the rendezvous.
#[pyclass(frozen, module = "zerolane")]
#[derive(Debug)]
pub(crate) struct Options(zerolane::Options);

/// A copy of `options`, or the defaults.
pub(crate) fn read(options: Option<&Bound<'_, Options>>) -> zerolane::Options {
    options.map_or_else(zerolane::Options::default, |options| {
        options.get().0.clone()
    })
}

/// A time given in seconds, not negative. One that no clock counts to, such as `math.inf`, is without end.
pub(crate) fn seconds(value: f64, name: &str) -> PyResult<Duration> {
    match Duration::try_from_secs_f64(value) {
        Ok(time) => Ok(time),
        Err(_) if value > 0.0 => Ok(Duration::MAX),
        Err(_) => Err(PyValueError::new_err(format!(
            "{name} is not a time: {value} s"
        ))),
    }
}

/// A lane by its name.
fn lane_named(name: &str) -> PyResult<LaneChoice> {
    match name {
        "udp" => Ok(LaneChoice::Udp),
        "best" => Ok(LaneChoice::Best),
        "shared_memory" => Ok(LaneChoice::SharedMemory),
        "ethernet" => Ok(LaneChoice::Ethernet),
        "ip118" => Ok(LaneChoice::Ip118),
        _ => Err(PyValueError::new_err(format!(
            "there is no lane {name:?}: udp, best, shared_memory, ethernet or ip118"
        ))),
    }
}

fn rendezvous_name(name: &str) -> PyResult<RendezvousName> {
    let named = name.parse();
    named.map_err(|why| PyValueError::new_err(format!("rendezvous {name:?}: {why}")))
}

/// How connections are protected.
pub(crate) fn security(
    plain: bool,
    authenticated: bool,
    identity: Option<PathBuf>,
    trust: Option<Vec<String>>,
) -> PyResult<Security> {
    if plain {
        return match (authenticated, identity, trust) {
            (false, None, None) => Ok(Security::plain()),
            (true, ..) => Err(PyValueError::new_err(
                "plain connections are not authenticated: say one of the two",
            )),
            _ => Err(PyValueError::new_err(
                "plain connections prove no key: neither identity nor trust has a meaning",
            )),
        };
    }
    let mut security = match authenticated {
        true => Security::authenticated(),
        false => Security::default(),
    };
    if let Some(file) = identity {
        let identity = identity::load_or_create(&file);
        let identity = identity.map_err(|error| PyOSError::new_err(error.to_string()))?;
        security.identity = Some(Arc::new(identity));
    }
    if let Some(keys) = trust {
        let keys = keys.iter().map(|key| key.parse());
        let keys: Result<HashSet<PublicKey>, _> = keys.collect();
        let keys = keys.map_err(|error| PyValueError::new_err(error.to_string()))?;
        security.trust = Arc::new(keys);
    }
    Ok(security)
}

#[pymethods]
impl Options {
    #[new]
    #[pyo3(signature = (*, strict=None, gso=None, gro=None, checksum=None, receive_buffer=None,
                        max_in_flight=None, spin=None, connect_timeout=None, idle_timeout=None,
                        plain=None, authenticated=None, identity=None, trust=None, lane=None, device=None,
                        paths=None, links=None, path_threads=None, ethernet_paths=None,
                        udp_paths=None, rendezvous=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords, in Python")]
    fn new(
        py: Python<'_>,
        strict: Option<bool>,
        gso: Option<bool>,
        gro: Option<bool>,
        checksum: Option<bool>,
        receive_buffer: Option<usize>,
        max_in_flight: Option<u32>,
        spin: Option<f64>,
        connect_timeout: Option<f64>,
        idle_timeout: Option<f64>,
        plain: Option<bool>,
        authenticated: Option<bool>,
        identity: Option<PathBuf>,
        trust: Option<Vec<String>>,
        lane: Option<&str>,
        device: Option<&Bound<'_, EthernetDevice>>,
        paths: Option<u8>,
        links: Option<Vec<String>>,
        path_threads: Option<bool>,
        ethernet_paths: Option<bool>,
        udp_paths: Option<bool>,
        rendezvous: Option<&str>,
    ) -> PyResult<Options> {
        let default = zerolane::Options::default();
        let time = |value: Option<f64>, name, default| {
            value.map_or(Ok(default), |value| seconds(value, name))
        };
        let options = zerolane::Options {
            strict: strict.unwrap_or(default.strict),
            gso: gso.unwrap_or(default.gso),
            gro: gro.unwrap_or(default.gro),
            checksum: checksum.unwrap_or(default.checksum),
            receive_buffer: receive_buffer.unwrap_or(default.receive_buffer),
            max_in_flight: max_in_flight.unwrap_or(default.max_in_flight),
            spin: time(spin, "spin", default.spin)?,
            connect_timeout: time(connect_timeout, "connect_timeout", default.connect_timeout)?,
            idle_timeout: time(idle_timeout, "idle_timeout", default.idle_timeout)?,
            security: security(
                plain.unwrap_or(false),
                authenticated.unwrap_or(false),
                identity,
                trust,
            )?,
            lane: lane.map_or(Ok(default.lane), lane_named)?,
            device: device.map(|it| it.get().0.clone()),
            paths: paths.map_or(Ok(default.paths), path::count)?,
            links: path::links(&links.unwrap_or_default())?,
            path_threads: path_threads.map_or(default.path_threads, PathThreads::from),
            rendezvous: rendezvous.map(rendezvous_name).transpose()?,
            ethernet_paths: ethernet_paths.unwrap_or(default.ethernet_paths),
            udp_paths: udp_paths.unwrap_or(default.udp_paths),
            ..default
        };
        let checked = options.check();
        checked.map_err(|error| errors::of(py, error.into()))?;
        Ok(Options(options))
    }

    /// The key by which others know an end with these settings; None if it makes one for each connection
    /// or endpoint.
    #[getter]
    fn key(&self) -> Option<String> {
        let identity = self.0.security.identity.as_ref();
        identity.map(|identity| identity.public().to_string())
    }

    fn __repr__(&self) -> String {
        format!(
            "Options(strict={}, connect_timeout={}, idle_timeout={})",
            if self.0.strict { "True" } else { "False" },
            self.0.connect_timeout.as_secs_f64(),
            self.0.idle_timeout.as_secs_f64()
        )
    }
}
