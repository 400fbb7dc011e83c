//! Paths of a connection that may have several.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use zerolane::counters::{PathLife, PathState};
use zerolane::options::{MAX_PATHS, PathAddresses};

/// A path of a connection, and what it did.
#[pyclass(frozen, get_all, module = "zerolane")]
pub(crate) struct Path {
    /// Its number; that of the first is 0.
    index: usize,
    /// Where it stands: "joining" (the peer is asked whether it is there), "sizing" (how large its datagrams may be is
    /// found out), "usable" (it carries payload) or "suspect" (it does not answer).
    life: &'static str,
    /// Smoothed round-trip time, seconds; None if none was measured.
    rtt: Option<f64>,
    /// Payload bytes that left by it, repeats included.
    bytes_sent: u64,
    /// Payload bytes that it lost, as far as the receiver said so.
    bytes_lost: u64,
    /// Payload bytes that came by it for the first time. Counted where both ends take several paths.
    bytes_received: u64,
    /// Bytes a second at which payload leaves; None: as fast as it can.
    pace: Option<u64>,
}

impl Path {
    /// `None` if there is none.
    pub(crate) fn of((index, state): (usize, PathState)) -> Option<Path> {
        let life = match state.life {
            PathLife::Absent => return None,
            PathLife::Joining => "joining",
            PathLife::Sizing => "sizing",
            PathLife::Usable => "usable",
            PathLife::Suspect => "suspect",
        };
        Some(Path {
            index,
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

/// So many paths.
pub(crate) fn count(paths: u8) -> PyResult<u8> {
    match (1..=MAX_PATHS).contains(&paths) {
        true => Ok(paths),
        false => Err(PyValueError::new_err(format!(
            "{paths} paths: a connection has 1 to {MAX_PATHS}"
        ))),
    }
}

/// "LOCAL=PEER".
pub(crate) fn addresses(link: &str) -> PyResult<PathAddresses> {
    let path = link.parse::<PathAddresses>();
    path.map_err(|why| PyValueError::new_err(format!("the link {link:?}: {why}")))
}

/// The paths beside the first.
pub(crate) fn links(links: &[String]) -> PyResult<Vec<PathAddresses>> {
    if links.len() >= usize::from(MAX_PATHS) {
        return Err(PyValueError::new_err(format!(
            "{} links: a connection has {MAX_PATHS} paths at most, the first included",
            links.len()
        )));
    }
    links.iter().map(|it| addresses(it)).collect()
}
