//! Casts a buffer from one source to the buffers of many hosts.
//!
//! A cast uses handles of the buffer's memory and drops them when it ends. The last one releases the buffer, so no
//! promise about remaining threads is needed.

use crate::address::{Address, pair};
use crate::errors::{self, exception};
use crate::options::{seconds, security};
use crate::pinned::{Use, pin};
use pyo3::exceptions::{PyOSError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use zerolane::options::LaneChoice;
use zerolane::security::PublicKey;
use zerolane_castnet::limits::CAST_PORT;
use zerolane_castnet::{Cast, Content, Destination, Error, Host, Outcome, Racks, Receiver, Slow};

/// Longest name of a content, in bytes: hosts use it as a file name.
const MAX_NAME: usize = 200;

/// Most stripes, as in the command.
const MAX_ARITY: u32 = 64;

/// Longer times are no limit.
const LONG: Duration = Duration::from_secs(1 << 32);

/// Resolves the host, at the port of casts unless it names one. May block on a name server.
fn resolve(host: &Address) -> zerolane::Result<Vec<SocketAddr>> {
    host.resolve_at(CAST_PORT, LaneChoice::Udp)
}

/// Exports the memory of `buffer` to a cast.
fn memory(buffer: &Bound<'_, PyAny>, purpose: Use) -> PyResult<zerolane::ExportedRegion> {
    let region = pin(buffer, purpose)?;
    if region.is_empty() {
        return Err(PyValueError::new_err("the buffer is empty"));
    }
    zerolane::ExportedRegion::new(region).map_err(|_| {
        PyValueError::new_err("the buffer does not begin at a multiple of 8 in memory")
    })
}

fn time(value: f64, name: &str) -> PyResult<Duration> {
    Ok(seconds(value, name)?.min(LONG))
}

fn silence_of(value: f64) -> PyResult<Duration> {
    match time(value, "silence")? {
        Duration::ZERO => Err(PyValueError::new_err(
            "silence is 0 s: every host would count as dead",
        )),
        silence => Ok(silence),
    }
}

fn rate(value: Option<u64>) -> PyResult<Option<u64>> {
    match value {
        Some(0) => Err(PyValueError::new_err(
            "max_rate is 0: nothing would be sent",
        )),
        value => Ok(value),
    }
}

fn slow_named(name: &str) -> PyResult<Slow> {
    match name {
        "wait" => Ok(Slow::Wait),
        "demote" => Ok(Slow::Demote),
        "drop" => Ok(Slow::Drop),
        _ => Err(PyValueError::new_err(format!(
            "slow={name:?}: use wait, demote or drop"
        ))),
    }
}

/// The reasons for which Python ends a cast: the exception of a signal handler, or a time limit.
struct Ending {
    deadline: Option<Instant>,
    raised: Mutex<Option<PyErr>>,
}

impl Ending {
    fn new(deadline: Option<Instant>) -> Ending {
        Ending {
            deadline,
            raised: Mutex::default(),
        }
    }

    fn raised(&self) -> MutexGuard<'_, Option<PyErr>> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called by the calling thread, without the interpreter.
    fn is_due(&self) -> bool {
        match Python::try_attach(|py| py.check_signals()) {
            Some(Ok(())) => self.deadline.is_some_and(|it| it <= Instant::now()),
            Some(Err(error)) => {
                *self.raised() = Some(error);
                true
            }
            // The interpreter is ending.
            None => true,
        }
    }

    /// The exception for a cast that failed at this end.
    fn exception(&self, py: Python<'_>, error: Error) -> PyErr {
        let text = error.to_string();
        match error {
            Error::Network(error) => errors::of(py, error),
            Error::Io { .. } => PyOSError::new_err(text),
            Error::Stopped => self
                .raised()
                .take()
                .unwrap_or_else(|| PyTimeoutError::new_err("the cast did not end in time")),
            _ => exception(py, "CastFailed", text),
        }
    }
}

/// The result of one host of a cast.
#[pyclass(frozen, weakref, module = "zerolane")]
#[derive(Clone)]
pub(crate) struct HostOutcome(zerolane_castnet::HostOutcome);

#[pymethods]
impl HostOutcome {
    /// The host, as given to `cast`.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// Why it does not have the content; None if it has.
    #[getter]
    fn reason(&self) -> Option<&str> {
        self.0.result.as_ref().err().map(String::as_str)
    }

    /// Seconds from the start of the cast to this result.
    #[getter]
    fn after(&self) -> f64 {
        self.0.after.as_secs_f64()
    }

    fn __repr__(&self) -> String {
        match self.reason() {
            None => format!("HostOutcome({:?}: has it)", self.0.name),
            Some(why) => format!("HostOutcome({:?}: {why})", self.0.name),
        }
    }
}

/// The result of a cast.
#[pyclass(frozen, weakref, module = "zerolane")]
pub(crate) struct CastOutcome(Outcome);

#[pymethods]
impl CastOutcome {
    /// The result of each host, in the given order.
    #[getter]
    fn hosts(&self) -> Vec<HostOutcome> {
        self.0.hosts.iter().cloned().map(HostOutcome).collect()
    }

    /// Seconds until the last successful host had the whole content in place.
    #[getter]
    fn took(&self) -> f64 {
        self.0.took.as_secs_f64()
    }

    /// The model's prediction of that time in seconds, from the measured rate of the first part. None: the cast ended
    /// before that.
    #[getter]
    fn predicted(&self) -> Option<f64> {
        self.0.predicted.map(|it| it.time.as_secs_f64())
    }

    /// Length of the content in bytes.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Bytes that this end sent. In a chain this is about one content, whatever the number of hosts.
    #[getter]
    fn sent(&self) -> u64 {
        self.0.sent
    }

    fn __repr__(&self) -> String {
        format!("CastOutcome({})", self.summary())
    }
}

impl CastOutcome {
    fn summary(&self) -> String {
        let hosts = &self.0.hosts;
        let why = |it: &zerolane_castnet::HostOutcome| {
            let why = it.result.as_ref().err()?;
            Some(format!("{}: {why}", it.name))
        };
        let failed: Vec<String> = hosts.iter().filter_map(why).collect();
        match failed.len() {
            0 if hosts.len() == 1 => "1 host has it".to_owned(),
            0 => format!("{} hosts have it", hosts.len()),
            some => format!(
                "{some} of {} hosts do not have it: {}",
                hosts.len(),
                failed.join("; ")
            ),
        }
    }
}

/// Casts all of `buffer` to `hosts`, in little more than the time of one host: each host forwards what it receives.
/// Hosts wait with a `CastReceiver` or `zerolane cast receive`; each is "host:port", "host" (port 9184), or a tuple of
/// both. Returns a CastOutcome if all hosts have the content. Otherwise raises CastFailed, whose text names the failed
/// hosts and their reasons and whose `outcome` is the CastOutcome; the other hosts have the content.
///
/// The buffer must start at a multiple of 8 in memory. The cast digests all of it first, and fails if it changes
/// meanwhile. Signal handlers run within about 0.1 s, and an exception that they raise ends the cast; only name lookups
/// are not interruptible.
///
/// Times are in seconds. `gather`: how long to wait for hosts; later hosts may still join. `linger`: how long after the
/// others a lost host is called again. `silence`: time without a sign of a host after which it counts as dead. `slow`:
/// "demote" (serve apart), "drop", or "wait" for hosts that hold others back. `max_rate`: most bytes per second to each
/// peer. `arity`: number of stripes, each sent along its own tree; 1 is a chain, None the choice of `zerolane cast
/// plan`. `name`: the file name at hosts that receive into a directory.
///
/// All is encrypted. `identity` is the file of this end's key, `trust` has the keys of the hosts: see `Options`.
#[pyfunction]
#[pyo3(signature = (buffer, hosts, *, name="memory", arity=None, gather=10.0, linger=3.0, slow="demote", silence=2.0,
                    max_rate=None, identity=None, trust=None))]
#[expect(clippy::too_many_arguments, reason = "keywords, in Python")]
pub(crate) fn cast(
    py: Python<'_>,
    buffer: &Bound<'_, PyAny>,
    hosts: Vec<Address>,
    name: &str,
    arity: Option<u32>,
    gather: f64,
    linger: f64,
    slow: &str,
    silence: f64,
    max_rate: Option<u64>,
    identity: Option<PathBuf>,
    trust: Option<Vec<String>>,
) -> PyResult<CastOutcome> {
    if hosts.is_empty() {
        return Err(PyValueError::new_err("there are no hosts"));
    }
    if let Some(arity) = arity.filter(|it| !(1..=MAX_ARITY).contains(it)) {
        let text = format!("arity {arity}: it must be 1 to {MAX_ARITY}");
        return Err(PyValueError::new_err(text));
    }
    if name.len() > MAX_NAME {
        let text = format!(
            "the name has {} bytes: at most {MAX_NAME} are possible",
            name.len()
        );
        return Err(PyValueError::new_err(text));
    }
    let cast = Cast {
        hosts: Vec::new(),
        arity,
        gather: time(gather, "gather")?,
        linger: time(linger, "linger")?,
        slow: slow_named(slow)?,
        silence: silence_of(silence)?,
        max_rate: rate(max_rate)?,
        racks: Racks::default(),
    };
    let security = security(false, false, identity, trust)?;
    let content = Content::memory(name.to_owned(), &memory(buffer, Use::Read)?);
    let ending = Ending::new(None);
    let done = py.detach(|| {
        let host = |it: &Address| Host {
            name: it.to_string(),
            addresses: match resolve(it) {
                Ok(found) if found.is_empty() => Err("it has no address".into()),
                Ok(found) => Ok(found),
                Err(error) => Err(error.to_string()),
            },
            security: security.clone(),
        };
        let hosts = hosts.iter().map(host).collect();
        Cast { hosts, ..cast }.run(&content, &|| ending.is_due(), &mut |_| {})
    });
    drop(content);
    let outcome = CastOutcome(done.map_err(|error| ending.exception(py, error))?);
    if outcome.0.hosts.iter().all(|it| it.result.is_ok()) {
        return Ok(outcome);
    }
    let error = exception(py, "CastFailed", outcome.summary());
    error.value(py).setattr("outcome", Py::new(py, outcome)?)?;
    Err(error)
}

/// Receives a cast into `buffer`. As a context manager it stops waiting on exit.
///
/// `address` is "host:port", "host" (port 9184), or a tuple of both; port 0 is any free port. The buffer must be
/// writable, start at a multiple of 8 in memory, and may be longer than the content. It cannot be resized until
/// `receive` has ended.
///
/// `patience`: seconds without progress after which it gives up; `silence`: seconds without a sign of a peer after
/// which it counts as dead; `max_rate`: most bytes per second to each peer. `identity` is the file of this end's key.
/// `trust` has the keys of the sources that may cast here; without it, any source may.
#[pyclass(frozen, weakref, module = "zerolane")]
pub(crate) struct CastReceiver {
    local: SocketAddr,
    key: Option<PublicKey>,
    /// `None` once used.
    receiver: Mutex<Option<Receiver>>,
}

impl CastReceiver {
    fn take(&self) -> Option<Receiver> {
        let mut receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        receiver.take()
    }
}

#[pymethods]
impl CastReceiver {
    #[new]
    #[pyo3(signature = (address, buffer, *, patience=30.0, silence=2.0, max_rate=None, identity=None, trust=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords, in Python")]
    fn new(
        py: Python<'_>,
        address: Address,
        buffer: &Bound<'_, PyAny>,
        patience: f64,
        silence: f64,
        max_rate: Option<u64>,
        identity: Option<PathBuf>,
        trust: Option<Vec<String>>,
    ) -> PyResult<CastReceiver> {
        let (patience, silence) = (time(patience, "patience")?, silence_of(silence)?);
        let max_rate = rate(max_rate)?;
        let security = security(false, false, identity, trust)?;
        let destination = Destination::Memory(memory(buffer, Use::Write)?);
        let bound = py.detach(|| {
            let on = resolve(&address)?;
            Receiver::bind(&on[..], security, destination)
        });
        let receiver = bound.map_err(|error| Ending::new(None).exception(py, error))?;
        let receiver = receiver
            .with_patience(patience)
            .with_silence(silence)
            .with_max_rate(max_rate);
        Ok(CastReceiver {
            local: receiver.local_addr(),
            key: receiver.public_key(),
            receiver: Mutex::new(Some(receiver)),
        })
    }

    /// The address listened on: host and port.
    #[getter]
    fn local_addr(&self) -> (String, u16) {
        pair(self.local)
    }

    /// The key by which sources know this end.
    #[getter]
    fn public_key(&self) -> Option<String> {
        self.key.map(|key| key.to_string())
    }

    /// Waits for a source and takes part in its cast, until all is in the buffer and no other host needs this one.
    /// Returns the length of the content in bytes. Can be called once.
    ///
    /// Raises CastFailed if the content did not come, and TimeoutError if it is not done within `timeout` seconds. The
    /// part that came is in the buffer.
    #[pyo3(signature = (timeout=None))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<u64> {
        let timeout = timeout.map(|it| time(it, "timeout")).transpose()?;
        let receiver = self.take();
        let receiver = receiver.ok_or_else(|| {
            PyValueError::new_err("the receiver was already used for a cast, or was closed")
        })?;
        let ending = Ending::new(timeout.map(|it| Instant::now() + it));
        let received = py.detach(|| receiver.run(&|| ending.is_due(), &mut |_| {}));
        match received {
            Ok(received) => Ok(received.bytes),
            Err(error) => Err(ending.exception(py, error)),
        }
    }

    /// Stops waiting. Releases the buffer, unless `receive` is in progress, which continues.
    fn close(&self, py: Python<'_>) {
        let receiver = self.take();
        py.detach(|| drop(receiver));
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        _exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        format!("CastReceiver('{}')", self.local)
    }
}
