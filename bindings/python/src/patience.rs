//! Waits without the interpreter, so that Ctrl-C can interrupt.

use crate::options::seconds;
use pyo3::prelude::*;
use std::time::{Duration, Instant};

/// The longest time until Ctrl-C is noticed.
const SLICE: Duration = Duration::from_millis(50);

/// A timeout from Python: seconds, or none.
#[derive(Clone, Copy)]
pub(crate) struct Patience(Option<Instant>);

impl Patience {
    pub(crate) fn new(timeout: Option<f64>) -> PyResult<Patience> {
        let timeout = timeout
            .map(|timeout| seconds(timeout, "timeout"))
            .transpose()?;
        Ok(Patience::of(timeout))
    }

    /// A time beyond the clock's range is no limit.
    pub(crate) fn of(timeout: Option<Duration>) -> Patience {
        Patience(timeout.and_then(|it| Instant::now().checked_add(it)))
    }

    /// The remaining time, at most a slice, after which signals are checked.
    fn slice(self) -> Duration {
        self.0.map_or(SLICE, |deadline| {
            SLICE.min(deadline.saturating_duration_since(Instant::now()))
        })
    }

    fn is_over(self) -> bool {
        self.0.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Runs `step` without the interpreter, for at most the time given to it, until it returns something or the time is
    /// over.
    ///
    /// # Errors
    /// Those of `step`, and the exception of a signal handler, usually KeyboardInterrupt.
    pub(crate) fn wait<T: Send>(
        self,
        py: Python<'_>,
        mut step: impl FnMut(Duration) -> zerolane::Result<Option<T>> + Send,
    ) -> PyResult<Option<T>> {
        loop {
            let slice = self.slice();
            let brought = py.detach(|| step(slice));
            if let Some(brought) = brought.map_err(|error| crate::errors::of(py, error))? {
                return Ok(Some(brought));
            }
            py.check_signals()?;
            if self.is_over() {
                return Ok(None);
            }
        }
    }
}
