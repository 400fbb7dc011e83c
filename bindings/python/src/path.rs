//! Converts the paths of a connection.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use zerolane::PathId;
use zerolane::counters::{PathLife, PathState};
use zerolane::options::{MAX_PATHS, PathAddresses};

/// State and counters of a path.
#[pyclass(frozen, get_all, weakref, module = "zerolane")]
pub(crate) struct Path {
    /// The path's number; 0 is the first path.
    index: u8,
    /// The state: "joining" (being probed for the first time), "sizing" (its datagram size is being probed), "usable"
    /// (carries payload) or "suspect" (does not answer).
    life: &'static str,
    /// Smoothed round-trip time in seconds; None if not measured.
    rtt: Option<f64>,
    /// Payload bytes sent, repeats included.
    bytes_sent: u64,
    /// Payload bytes lost, as the receiver reported.
    bytes_lost: u64,
    /// Payload bytes that it brought for the first time. Counted if both ends allow several paths.
    bytes_received: u64,
    /// Sending rate of payload in bytes per second; None: unlimited.
    pace: Option<u64>,
}

impl Path {
    /// `None` if the path does not exist.
    pub(crate) fn of((id, state): (PathId, PathState)) -> Option<Path> {
        let life = match state.life {
            PathLife::Absent => return None,
            PathLife::Joining => "joining",
            PathLife::Sizing => "sizing",
            PathLife::Usable => "usable",
            PathLife::Suspect => "suspect",
        };
        Some(Path {
            index: id.get(),
            life,
            rtt: state.rtt.map(|it| it.as_secs_f64()),
            bytes_sent: state.bytes_sent,
            bytes_lost: state.bytes_lost,
            bytes_received: state.bytes_received,
            pace: state.pace,
        })
    }
}

#[pymethods]
impl Path {
    fn __repr__(&self) -> String {
        format!(
            "Path(index={}, life={:?}, bytes_sent={}, bytes_received={})",
            self.index, self.life, self.bytes_sent, self.bytes_received
        )
    }
}

/// Checks a number of paths.
pub(crate) fn count(paths: u8) -> PyResult<u8> {
    match (1..=MAX_PATHS).contains(&paths) {
        true => Ok(paths),
        false => Err(PyValueError::new_err(format!(
            "{paths} paths: a connection has 1 to {MAX_PATHS}"
        ))),
    }
}

/// Parses "LOCAL=PEER".
pub(crate) fn addresses(link: &str) -> PyResult<PathAddresses> {
    let path = link.parse::<PathAddresses>();
    path.map_err(|why| PyValueError::new_err(format!("the link {link:?}: {why}")))
}

/// Parses the paths besides the first.
pub(crate) fn links(links: &[String]) -> PyResult<Vec<PathAddresses>> {
    if links.len() >= usize::from(MAX_PATHS) {
        return Err(PyValueError::new_err(format!(
            "{} links: a connection has at most {MAX_PATHS} paths, including the first",
            links.len()
        )));
    }
    links.iter().map(|it| addresses(it)).collect()
}
