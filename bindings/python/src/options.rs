//! Converts the settings of endpoints and connections.

use crate::device::EthernetDevice;
use crate::{errors, path};
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use zerolane::Security;
use zerolane::keys::identity;
use zerolane::options::{LaneChoice, PrivateData, RendezvousName};
use zerolane::security::PublicKey;

/// Settings of connections; the defaults suit a local network. Times are in seconds, sizes in bytes.
///
/// `connect_timeout` (5) bounds connecting, and a peer that leaves requests unanswered for `idle_timeout` (15) counts as
/// dead; neither may be 0. `spin` (0.00005) is how long a wait polls before it sleeps. `receive_buffer` (8 MiB) is the
/// socket buffer to ask for, and `max_in_flight` (128 MiB) what the peer may be granted ahead: each 4 KiB to 1 GiB.
/// `gso` and `gro` (True) use the kernel's UDP offloads, `checksum` (False) checks payload besides UDP's checksum, and
/// `strict` (False) ends a connection rather than copy payload in user space.
///
/// Connections are encrypted. `identity` is the file of the key by which peers know this end, in the format of
/// `zerolane keygen`; it is created if missing. Without it, each connection or endpoint makes a fresh key. `trust` has
/// the keys ("zl:...") of accepted peers; without it, any peer is accepted. `plain` turns protection off, if the peer
/// does the same: a host on the path can then read and change everything. `authenticated` protects content from changes
/// but does not encrypt it, if the peer does the same: a host on the path can read everything.
///
/// `lane` is "best" (the default: shared memory to processes of this host and user, otherwise UDP), "udp",
/// "shared_memory", "ethernet" or "ip118"; the last three fail if the lane is not possible. "ethernet" is raw Ethernet
/// between hosts of one segment; addresses are "ether:IFACE/MAC:PORT", and "ether:IFACE:PORT" to listen; with `device`,
/// an EthernetDevice, it bypasses the kernel's network stack. "ip118" is IP protocol 118 without UDP. Shared memory is
/// not encrypted: the kernel keeps other users out.
///
/// `paths` is the most paths of a connection over UDP or raw Ethernet, 1 to 8; the smaller of both ends' values
/// applies, and a `device` allows one. `links` are the paths that a connection opened from here adds to the first, each
/// "LOCAL=PEER": from an address of this host to one of the peer. Omitted parts, including ports, are those of the
/// first path. "ether:IFACE=ether:IFACE/MAC" is a path over raw Ethernet, from an interface of this host to a hardware
/// address of the peer; it needs CAP_NET_RAW, and a peer whose endpoint has `ethernet_paths`, which needs it as well,
/// or `lane` "ethernet". Over raw Ethernet a path over UDP names an address of the peer, whose endpoint must have
/// `udp_paths`. `path_threads` gives each path but the first a thread at this end.
///
/// `keep_alive` asks the peer ten times an `idle_timeout` whether it lives, also while no request depends on it, so
/// that an idle connection over a network ends when its peer has died. A peer whose program makes no call for that time
/// then counts as dead, unless a worker's thread or asyncio answers for it.
///
/// `backlog` is how many connections an Endpoint accepts before its program does, in a thread of its own, 64 unless
/// set; further clients wait. 0: no thread, and clients wait for `accept`. Has no effect on a worker's endpoints.
///
/// `private_data`, up to 64 bytes, goes to the peer with the request for a connection, or with each answer of an
/// endpoint: `Connection.peer_data` there. An end that gives some, even empty, gets those of the answer. With `asks` an
/// endpoint accepts nothing by itself: `Endpoint.incoming` shows each request, to accept or refuse it.
///
/// `rendezvous` is the name by which both ends of shared memory find each other instead of the address: for containers
/// of one kernel with separate networks and one rendezvous directory.
///
/// Options can be pickled, but not with a `device`. Of `identity` the pickle has the file's name, not its key.
#[pyclass(frozen, weakref, module = "zerolane")]
#[derive(Debug)]
pub(crate) struct Options {
    options: zerolane::Options,
    /// The keywords that were given, for pickle.
    given: Py<PyDict>,
}

/// A copy of `options`, or the defaults.
pub(crate) fn read(options: Option<&Bound<'_, Options>>) -> zerolane::Options {
    options.map_or_else(zerolane::Options::default, |options| {
        options.get().options.clone()
    })
}

/// Converts a time in seconds, not negative. One beyond the clock's range, such as `math.inf`, is no limit.
pub(crate) fn seconds(value: f64, name: &str) -> PyResult<Duration> {
    match Duration::try_from_secs_f64(value) {
        Ok(time) => Ok(time),
        Err(_) if value > 0.0 => Ok(Duration::MAX),
        Err(_) => Err(PyValueError::new_err(format!(
            "{name} is not a time: {value} s"
        ))),
    }
}

/// The lane with this name.
fn lane_named(name: &str) -> PyResult<LaneChoice> {
    match name {
        "udp" => Ok(LaneChoice::Udp),
        "best" => Ok(LaneChoice::Best),
        "shared_memory" => Ok(LaneChoice::SharedMemory),
        "ethernet" => Ok(LaneChoice::Ethernet),
        "ip118" => Ok(LaneChoice::Ip118),
        _ => Err(PyValueError::new_err(format!(
            "lane={name:?}: use udp, best, shared_memory, ethernet or ip118"
        ))),
    }
}

/// Private data of a connection.
pub(crate) fn private_data(data: Option<&[u8]>) -> PyResult<Option<PrivateData>> {
    let data = data.map(PrivateData::new).transpose();
    data.map_err(|error| PyValueError::new_err(error.to_string()))
}

fn rendezvous_name(name: &str) -> PyResult<RendezvousName> {
    let named = name.parse();
    named.map_err(|why| PyValueError::new_err(format!("rendezvous {name:?}: {why}")))
}

/// The protection of connections.
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
                "plain and authenticated exclude each other",
            )),
            _ => Err(PyValueError::new_err(
                "plain connections prove no key: identity and trust have no effect",
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
                        udp_paths=None, rendezvous=None, keep_alive=None, backlog=None,
                        private_data=None, asks=None))]
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
        keep_alive: Option<bool>,
        backlog: Option<u16>,
        private_data: Option<&[u8]>,
        asks: Option<bool>,
    ) -> PyResult<Options> {
        let given = PyDict::new(py);
        macro_rules! keep {
            ($($keyword:ident)*) => {
                $(if let Some(value) = &$keyword {
                    given.set_item(stringify!($keyword), value)?;
                })*
            };
        }
        keep!(strict gso gro checksum receive_buffer max_in_flight spin connect_timeout idle_timeout
              plain authenticated identity trust lane paths links path_threads ethernet_paths
              udp_paths rendezvous keep_alive backlog asks);
        if let Some(data) = private_data {
            given.set_item("private_data", data)?;
        }
        if let Some(device) = device {
            given.set_item("device", device)?;
        }
        let mut options = zerolane::Options::default();
        macro_rules! set {
            ($($keyword:ident: $setting:ident $(. $part:ident)*,)*) => {
                $(if let Some(value) = $keyword {
                    options.$setting$(.$part)* = value.into();
                })*
            };
        }
        let time = |value: Option<f64>, name| value.map(|it| seconds(it, name)).transpose();
        let spin = time(spin, "spin")?;
        let connect_timeout = time(connect_timeout, "connect_timeout")?;
        let idle_timeout = time(idle_timeout, "idle_timeout")?;
        let lane = lane.map(lane_named).transpose()?;
        let paths = paths.map(path::count).transpose()?;
        set!(
            strict: strict,
            gso: datagrams.gso,
            gro: datagrams.gro,
            checksum: datagrams.checksum,
            receive_buffer: flow.receive_buffer,
            max_in_flight: flow.max_in_flight,
            spin: times.spin,
            connect_timeout: times.connect,
            idle_timeout: times.idle,
            keep_alive: times.keep_alive,
            lane: lane.choice,
            paths: paths.most,
            path_threads: paths.threads,
            ethernet_paths: paths.ethernet,
            udp_paths: paths.udp,
            backlog: listen.backlog,
            asks: listen.asks,
        );
        options.security = security(
            plain.unwrap_or(false),
            authenticated.unwrap_or(false),
            identity,
            trust,
        )?;
        options.lane.device = device.map(|it| it.get().0.clone());
        options.lane.rendezvous = rendezvous.map(rendezvous_name).transpose()?;
        options.paths.links = path::links(&links.unwrap_or_default())?;
        options.private_data = self::private_data(private_data)?;
        let checked = options.check();
        checked.map_err(|error| errors::of(py, error.into()))?;
        Ok(Options {
            options,
            given: given.unbind(),
        })
    }

    /// The key by which peers know an end with these settings; None if each connection or endpoint makes its own.
    #[getter]
    fn key(&self) -> Option<String> {
        let identity = self.options.security.identity.as_ref();
        identity.map(|identity| identity.public().to_string())
    }

    /// Whether an endpoint asks its program about each request for a connection.
    #[getter]
    fn asks(&self) -> bool {
        self.options.listen.asks
    }

    /// For pickle: no positional arguments, and the keywords that were given.
    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let given = self.given.bind(py).copy()?;
        if given.contains("device")? {
            return Err(PyTypeError::new_err(
                "options with a device cannot be pickled: the device belongs to this process",
            ));
        }
        Ok((PyTuple::empty(py), given))
    }

    fn __repr__(&self) -> String {
        format!(
            "Options(strict={}, connect_timeout={}, idle_timeout={})",
            if self.options.strict { "True" } else { "False" },
            self.options.times.connect.as_secs_f64(),
            self.options.times.idle.as_secs_f64()
        )
    }
}
