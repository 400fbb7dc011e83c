//! Settings of endpoints and connections.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::time::Duration;

/// Settings of connections; the defaults suit a local network. Times are in seconds, sizes in bytes.
#[pyclass(frozen, module = "zerolane")]
#[derive(Debug)]
pub(crate) struct Options(zerolane::Options);

/// A copy of `options`, or the defaults.
pub(crate) fn read(options: Option<&Bound<'_, Options>>) -> zerolane::Options {
    options.map_or_else(zerolane::Options::default, |options| {
        options.get().0.clone()
    })
}

/// A time given in seconds, not negative.
pub(crate) fn seconds(value: f64, name: &str) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| PyValueError::new_err(format!("{name} is not a time: {value} s")))
}

#[pymethods]
impl Options {
    #[new]
    #[pyo3(signature = (*, strict=None, gso=None, gro=None, checksum=None, receive_buffer=None,
                        max_in_flight=None, spin=None, connect_timeout=None, idle_timeout=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords, in Python")]
    fn new(
        strict: Option<bool>,
        gso: Option<bool>,
        gro: Option<bool>,
        checksum: Option<bool>,
        receive_buffer: Option<usize>,
        max_in_flight: Option<u32>,
        spin: Option<f64>,
        connect_timeout: Option<f64>,
        idle_timeout: Option<f64>,
    ) -> PyResult<Options> {
        let default = zerolane::Options::default();
        let time = |value: Option<f64>, name, default| {
            value.map_or(Ok(default), |value| seconds(value, name))
        };
        Ok(Options(zerolane::Options {
            strict: strict.unwrap_or(default.strict),
            gso: gso.unwrap_or(default.gso),
            gro: gro.unwrap_or(default.gro),
            checksum: checksum.unwrap_or(default.checksum),
            receive_buffer: receive_buffer.unwrap_or(default.receive_buffer),
            max_in_flight: max_in_flight.unwrap_or(default.max_in_flight),
            spin: time(spin, "spin", default.spin)?,
            connect_timeout: time(connect_timeout, "connect_timeout", default.connect_timeout)?,
            idle_timeout: time(idle_timeout, "idle_timeout", default.idle_timeout)?,
            ..default
        }))
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
