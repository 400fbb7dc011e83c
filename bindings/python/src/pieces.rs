//! Reads the pieces of a request: a list of buffers, or parts of one buffer by arrays of indices.

use crate::exported::Key;
use crate::pinned::{Use, pin, pin_parts};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use zerolane::Region;
use zerolane::request::{GetPieces, PutPieces};

/// Pieces of one buffer, for `post_put_vectored` and the like: piece n is the `length[n]` bytes at `local[n]` of
/// `buffer`, and at `remote[n]` of the peer's memory. All are in bytes.
///
/// `local`, `remote` and `length` are arrays, such as numpy's, or lists of integers, and are copied; a number as
/// `length` is that of each piece. The buffer is in use, as a whole, while a request uses the pieces. Several requests
/// may use them.
#[pyclass(frozen, weakref, module = "zerolane")]
pub(crate) struct Pieces {
    buffer: Py<PyAny>,
    parts: Vec<Part>,
}

/// A piece: its bytes here, and its place there.
struct Part {
    local: u64,
    remote: u64,
    length: u64,
}

/// Integers of an array or a list.
fn numbers(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<u64>> {
    let list = match PyMemoryView::from(object) {
        Ok(array) => array.call_method0("tolist")?,
        Err(_) => object.clone(),
    };
    let items = list.try_iter()?.enumerate();
    let number = |(index, item): (usize, PyResult<Bound<'_, PyAny>>)| {
        item?.extract::<u64>().map_err(|error| {
            let text = format!("{name}[{index}]: {}", error.value(list.py()));
            PyErr::from_type(error.get_type(list.py()), text)
        })
    };
    items.map(number).collect()
}

#[pymethods]
impl Pieces {
    #[new]
    fn new(
        buffer: Py<PyAny>,
        local: &Bound<'_, PyAny>,
        remote: &Bound<'_, PyAny>,
        length: &Bound<'_, PyAny>,
    ) -> PyResult<Pieces> {
        let (local, remote) = (numbers(local, "local")?, numbers(remote, "remote")?);
        let length = match length.extract::<u64>() {
            Ok(each) => vec![each; local.len()],
            Err(error) if error.is_instance_of::<PyOverflowError>(length.py()) => {
                return Err(error);
            }
            Err(_) => numbers(length, "length")?,
        };
        if local.len() != remote.len() || local.len() != length.len() {
            return Err(PyValueError::new_err(format!(
                "{} local offsets, {} remote ones and {} lengths: each piece has one of each",
                local.len(),
                remote.len(),
                length.len()
            )));
        }
        let parts = local.into_iter().zip(remote).zip(length);
        let part = |((local, remote), length)| Part {
            local,
            remote,
            length,
        };
        Ok(Pieces {
            buffer,
            parts: parts.map(part).collect(),
        })
    }

    fn __len__(&self) -> usize {
        self.parts.len()
    }

    fn __repr__(&self) -> String {
        format!("Pieces({} of one buffer)", self.parts.len())
    }
}

/// The argument of a request: any number of pieces, each an offset there and a buffer, or pieces of one buffer.
pub(crate) enum Given<'py> {
    /// An offset there and a buffer each.
    Listed(Vec<(u64, Bound<'py, PyAny>)>),
    Indexed(Bound<'py, Pieces>),
}

impl<'py> FromPyObject<'_, 'py> for Given<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Given<'py>> {
        match object.cast::<Pieces>() {
            Ok(pieces) => Ok(Given::Indexed(pieces.to_owned())),
            Err(_) => Ok(Given::Listed(object.extract()?)),
        }
    }
}

impl Given<'_> {
    /// A put of the pieces, gathered here and scattered there.
    ///
    /// # Errors
    /// As for [`pin`]; ValueError if a piece lies outside of its buffer.
    pub(crate) fn put(&self, key: &Bound<'_, Key>) -> PyResult<PutPieces> {
        let pieces = self.pin(Use::Read, |it| it.share().into())?;
        Ok(PutPieces::new(&key.get().region(), pieces))
    }

    /// A get of the pieces, gathered there and scattered here.
    ///
    /// # Errors
    /// As for [`Given::put`].
    pub(crate) fn get(&self, key: &Bound<'_, Key>) -> PyResult<GetPieces> {
        let pieces = self.pin(Use::Write, |it| it)?;
        Ok(GetPieces::new(&key.get().region(), pieces))
    }

    /// The pieces, each with its offset there, and the memory converted by `of`.
    fn pin<M>(&self, using: Use, of: fn(Region) -> M) -> PyResult<Vec<(u64, M)>> {
        match self {
            Given::Listed(pieces) => {
                let piece = |(offset, buffer): &(u64, Bound<'_, PyAny>)| {
                    Ok((*offset, of(pin(buffer, using)?)))
                };
                pieces.iter().map(piece).collect()
            }
            Given::Indexed(pieces) => {
                let Pieces { buffer, parts } = pieces.get();
                let places = parts.iter().map(|it| (it.local, it.length));
                let regions = pin_parts(buffer.bind(pieces.py()), using, places)?;
                let remotes = parts.iter().map(|it| it.remote);
                Ok(remotes.zip(regions.into_iter().map(of)).collect())
            }
        }
    }
}
