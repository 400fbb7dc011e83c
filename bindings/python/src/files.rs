//! Reads and writes the files of a directory that another host serves.

use crate::address::Address;
use crate::aside::aside;
use crate::dropped;
use crate::errors::{self, exception};
use crate::options::{self, Options};
use crate::patience::Patience;
use crate::pinned::{Use, pin, pin_parts};
use pyo3::exceptions::{
    PyFileExistsError, PyFileNotFoundError, PyIsADirectoryError, PyNotADirectoryError, PyOSError,
    PyPermissionError, PyValueError,
};
use pyo3::prelude::*;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeWriter, pipe};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use zerolane::{Connection, Region};
use zerolane_files::limits::{DEFAULT_PORT, RANGE_BYTES};
use zerolane_files::{
    Cause, Client, CopyOptions, EntryKind, Error, Failure, Host, ListOptions, Listed, Meta,
    Observer, Range, Ranges, Refusal, RemoveOptions, Replace, Status, Stop, Version,
};

/// Why something was not done.
enum Trouble {
    Request(Error),
    File(Failure),
    Local(io::Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Request(error)
    }
}

impl Trouble {
    fn exception(self, py: Python<'_>) -> PyErr {
        match self {
            Trouble::File(failure) => of_cause(&failure.cause, failure.to_string()),
            Trouble::Request(error) => of(py, error),
            Trouble::Local(error) => error.into(),
        }
    }
}

/// The exception of a request that failed as a whole.
fn of(py: Python<'_>, error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Connect { source, .. } | Error::Transport(source) => errors::of(py, source),
        Error::Refused(Refusal::Path { cause, .. }) | Error::Local { cause, .. } => {
            of_cause(&cause, text)
        }
        Error::Refused(
            Refusal::ReadOnly | Refusal::ReadOnlyKey | Refusal::NotAllowed | Refusal::NoPlace,
        ) => PyPermissionError::new_err(text),
        Error::Refused(_) | Error::Output(_) | Error::NoMemory => PyOSError::new_err(text),
        Error::InputGone(source) | Error::Unanswered { source } | Error::GaveUp { source, .. }
            if matches!(*source, Error::Transport(_)) =>
        {
            exception(py, "ConnectionEnded", text)
        }
        Error::PeerGone | Error::Stalled | Error::Forgotten => {
            exception(py, "ConnectionEnded", text)
        }
        Error::NotFileService | Error::Version { .. } | Error::Protocol(_) => {
            exception(py, "ProtocolError", text)
        }
        _ => exception(py, "Error", text),
    }
}

/// The exception of the operating system for the same cause.
fn of_cause(cause: &Cause, text: String) -> PyErr {
    match cause {
        Cause::NotFound | Cause::Vanished | Cause::NoMatch | Cause::LinkToNothing => {
            PyFileNotFoundError::new_err(text)
        }
        Cause::PermissionDenied | Cause::ReadOnly | Cause::OutsideRoot | Cause::ServedDirectory => {
            PyPermissionError::new_err(text)
        }
        Cause::IsADirectory | Cause::NotRecursive => PyIsADirectoryError::new_err(text),
        Cause::NotADirectory => PyNotADirectoryError::new_err(text),
        Cause::Exists => PyFileExistsError::new_err(text),
        Cause::InvalidName => PyValueError::new_err(text),
        _ => PyOSError::new_err(text),
    }
}

/// Keeps the first failure.
#[derive(Default)]
struct Failures(Mutex<Option<Failure>>);

impl Observer for Failures {
    fn failed(&self, failure: &Failure) {
        locked(&self.0).get_or_insert_with(|| failure.clone());
    }
}

impl Failures {
    fn check(self) -> Result<(), Trouble> {
        let first = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        first.map_or(Ok(()), |failure| Err(Trouble::File(failure)))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pattern that matches only `path`.
fn literal(path: &OsStr) -> Vec<u8> {
    let special = |byte: &u8| b"*?[\\".contains(byte);
    let escaped = path.as_bytes().iter().flat_map(|byte| {
        let backslash = special(byte).then_some(b'\\');
        backslash.into_iter().chain([*byte])
    });
    escaped.collect()
}

fn name_of(path: &[u8]) -> OsString {
    OsString::from_vec(path.to_vec())
}

/// The status of a file, directory, symbolic link or special file that a host serves.
#[pyclass(frozen, weakref, eq, module = "zerolane")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileStatus {
    kind: EntryKind,
    size: u64,
    meta: Meta,
    version: Option<Version>,
    target: Option<Vec<u8>>,
}

impl From<Status> for FileStatus {
    fn from(status: Status) -> FileStatus {
        FileStatus {
            kind: status.kind,
            size: status.size,
            meta: status.meta,
            version: Some(status.version),
            target: None,
        }
    }
}

#[pymethods]
impl FileStatus {
    /// "file", "directory", "link" or "special".
    #[getter]
    fn kind(&self) -> &'static str {
        match self.kind {
            EntryKind::File => "file",
            EntryKind::Directory => "directory",
            EntryKind::Link => "link",
            EntryKind::Special => "special",
        }
    }

    /// Bytes of content.
    #[getter]
    fn size(&self) -> u64 {
        self.size
    }

    /// Permission bits.
    #[getter]
    fn mode(&self) -> u32 {
        self.meta.mode
    }

    /// Modification time, nanoseconds since 1970.
    #[getter]
    fn mtime_ns(&self) -> i128 {
        i128::from(self.meta.mtime_seconds) * 1_000_000_000
            + i128::from(self.meta.mtime_nanoseconds)
    }

    /// A text that differs between two states of the file; None in a listing.
    #[getter]
    fn version(&self) -> Option<String> {
        self.version.map(|it| {
            let Version {
                inode,
                size,
                changed_seconds,
                changed_nanoseconds,
            } = it;
            format!("{inode:x}-{size:x}-{changed_seconds:x}.{changed_nanoseconds:x}")
        })
    }

    /// The target of a symbolic link; None if it is none, or was followed.
    #[getter]
    fn target(&self) -> Option<OsString> {
        self.target.as_deref().map(name_of)
    }

    fn __repr__(&self) -> String {
        format!("FileStatus({}, {} bytes)", self.kind(), self.size)
    }
}

/// Reads, writes and lists the files of a directory that another host serves (`zerolane serve`).
///
/// `address` is "host:port", "host" (port 9181), or a tuple of both. Paths start at the served directory. Without
/// `identity` in the options the server must let in everyone (`--anyone`); without `trust` any server is accepted.
///
/// A refusal by the server is an OSError, such as FileNotFoundError or PermissionError. Several threads may use it. It
/// keeps connections for reads that are at most 5 s old.
#[pyclass(frozen, weakref, module = "zerolane")]
pub(crate) struct FileClient {
    client: Client,
    /// Connections that are not in use.
    idle: Mutex<Vec<Ranges>>,
}

/// How reading over one connection ended.
enum Ended {
    Read(Range),
    /// The server refuses; the connection goes on.
    Refused(PyErr),
    /// The connection is over.
    Broken(PyErr),
    /// A signal handler raised.
    Raised(PyErr),
}

impl FileClient {
    /// Carries out a request in a thread of its own; it is stopped if a signal handler raises.
    fn carry_out<T: Send + 'static>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Client) -> Result<T, Trouble> + Send + 'static,
    ) -> PyResult<T> {
        let stop = Stop::default();
        let client = self.client.clone().with_stop(stop.clone());
        let done = aside(py, move || Ok(call(&client))).inspect_err(|_| stop.request())?;
        done.map_err(|trouble| trouble.exception(py))
    }

    /// Reads a range, over an idle connection or a new one.
    fn range(
        &self,
        py: Python<'_>,
        path: &OsStr,
        (offset, version): (u64, Option<Version>),
        memory: impl Fn() -> PyResult<Region>,
    ) -> PyResult<Range> {
        let idle = {
            let mut idle = locked(&self.idle);
            let stale: Vec<Ranges> = idle.extract_if(.., |it| !it.is_fresh()).collect();
            let fresh = idle.pop();
            drop(idle);
            py.detach(|| drop(stale));
            fresh
        };
        let is_new = idle.is_none();
        let connect = || self.carry_out(py, |client| Ok(client.ranges()?));
        let mut ranges = idle.map_or_else(connect, Ok)?;
        let mut ended = read(py, &mut ranges, path, (offset, version), memory()?);
        if let (Ended::Broken(_), false) = (&ended, is_new) {
            // The server ended it, or this process is a child of the one that made it.
            let over = std::mem::replace(&mut ranges, connect()?);
            py.detach(|| drop(over));
            ended = read(py, &mut ranges, path, (offset, version), memory()?);
        }
        let outcome = match ended {
            Ended::Read(range) => Ok(range),
            Ended::Refused(error) => Err(error),
            Ended::Broken(error) | Ended::Raised(error) => {
                py.detach(|| drop(ranges));
                return Err(error);
            }
        };
        locked(&self.idle).push(ranges);
        outcome
    }
}

fn read(
    py: Python<'_>,
    ranges: &mut Ranges,
    path: &OsStr,
    (offset, version): (u64, Option<Version>),
    memory: Region,
) -> Ended {
    let mut asked = Some(memory);
    let over = Patience::of(None).wait(py, |time| {
        let step = match asked.take() {
            Some(memory) => ranges.ask(path.as_bytes(), offset, version, memory),
            None => Ok(()),
        };
        Ok(step.and_then(|()| ranges.wait(time)).transpose())
    });
    match over {
        Ok(Some(Ok(range))) => Ended::Read(range),
        Ok(Some(Err(error @ Error::Refused(_)))) => Ended::Refused(of(py, error)),
        Ok(Some(Err(error))) => Ended::Broken(of(py, error)),
        // Without a limit, the wait ends with an answer.
        Ok(None) => Ended::Broken(of(py, Error::Internal)),
        Err(raised) => Ended::Raised(raised),
    }
}

#[pymethods]
impl FileClient {
    #[new]
    #[pyo3(signature = (address, options=None))]
    fn new(address: Address, options: Option<&Bound<'_, Options>>) -> FileClient {
        // For messages only: the address is resolved by each connection.
        let host = Host {
            user: None,
            name: address.to_string(),
            port: None,
        };
        let client = Client::new(host)
            .with_transport(options::read(options))
            .with_connector(move |options| {
                let to = address.resolve_at(DEFAULT_PORT, options.lane.choice)?;
                Connection::connect(&to[..], options)
            });
        FileClient {
            client,
            idle: Mutex::default(),
        }
    }

    /// The status of what is at `path`. A symbolic link to something below the served directory is followed.
    fn status(&self, py: Python<'_>, path: OsString) -> PyResult<FileStatus> {
        let range = self.range(py, &path, (0, None), || Ok(Region::empty()))?;
        Ok(range.status.into())
    }

    /// Reads from byte `offset` of the file at `path` into `buffer`, without a copy in Python. Returns the number of
    /// bytes, less than the buffer has only where the file ends, and the file's status. With `unchanged`, a status, it
    /// raises OSError if the file changed since then.
    #[pyo3(signature = (path, offset, buffer, *, unchanged=None))]
    fn read_into(
        &self,
        py: Python<'_>,
        path: OsString,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
        unchanged: Option<&Bound<'_, FileStatus>>,
    ) -> PyResult<(u64, FileStatus)> {
        let len = pin(buffer, Use::Write)?.len();
        let mut version = unchanged.and_then(|it| it.get().version);
        let mut done = 0;
        loop {
            let part = (len - done).min(RANGE_BYTES);
            let at = (offset.saturating_add(done as u64), version);
            let memory = || {
                let part = (done as u64, part as u64);
                let mut parts = pin_parts(buffer, Use::Write, std::iter::once(part))?;
                Ok(parts.pop().unwrap_or_else(Region::empty))
            };
            let range = self.range(py, &path, at, memory)?;
            let read = range.len as usize;
            done += read;
            version = Some(range.status.version);
            if read < part || done == len {
                return Ok((done as u64, range.status.into()));
            }
        }
    }

    /// The entries of the directory at `path`, at every depth if `recursive`, as pairs of the path below it and the
    /// status; of a file, one with an empty path. A directory that cannot be read has no entries. Symbolic links are
    /// not followed.
    #[pyo3(signature = (path, *, recursive=false))]
    fn list(
        &self,
        py: Python<'_>,
        path: OsString,
        recursive: bool,
    ) -> PyResult<Vec<(OsString, FileStatus)>> {
        self.carry_out(py, move |client| {
            let options = ListOptions {
                recursive,
                hidden: true,
            };
            let (mut top, mut failed, mut found) = (None, None, Vec::new());
            client.list(&[literal(&path)], options, |listed| {
                let (name, entry) = match listed {
                    Listed::Top(_, entry) => (&b""[..], entry),
                    Listed::Below(name, entry) => (name, entry),
                    Listed::Failed(failure) => {
                        failed.get_or_insert_with(|| failure.clone());
                        return ControlFlow::Continue(());
                    }
                };
                let status = FileStatus {
                    kind: entry.kind,
                    size: entry.size,
                    meta: entry.meta,
                    version: None,
                    target: entry.target.clone(),
                };
                match name.is_empty() {
                    true => top = Some(status),
                    false => found.push((name_of(name), status)),
                }
                ControlFlow::Continue(())
            })?;
            match (top, failed) {
                (Some(top), _) if top.kind != EntryKind::Directory => {
                    found.push((OsString::new(), top));
                }
                (None, Some(failure)) => return Err(Trouble::File(failure)),
                _ => {}
            }
            Ok(found)
        })
    }

    /// Copies the local file `source` to `path`: verified, and under its name only when it is complete. If a directory
    /// is at `path`, the file goes into it. Permissions and time are kept. The copy goes on after an outage.
    fn put(&self, py: Python<'_>, source: PathBuf, path: OsString) -> PyResult<()> {
        self.carry_out(py, move |client| {
            let failures = Failures::default();
            client.put(
                &[source],
                path.as_bytes(),
                &CopyOptions::default(),
                &failures,
            )?;
            failures.check()
        })
    }

    /// Copies the file at `path` to the local file `target`, part by part, each verified. After a failure `target` has
    /// the beginning. The copy goes on after an outage.
    fn get(&self, py: Python<'_>, path: OsString, target: PathBuf) -> PyResult<()> {
        // A file that is not there leaves `target` alone.
        self.status(py, path.clone())?;
        self.carry_out(py, move |client| {
            let out = File::create(&target).map_err(Trouble::Local)?;
            let failures = Failures::default();
            client.get_stream(path.as_bytes(), &out, &CopyOptions::default(), &failures)?;
            failures.check()
        })
    }

    /// Begins to write the file at `path`, which gets its name when `FileUpload.finish` succeeds.
    fn upload(&self, path: OsString) -> PyResult<FileUpload> {
        let (input, writer) = pipe()?;
        let (tell, told) = sync_channel(1);
        let stop = Stop::default();
        let client = self.client.clone().with_stop(stop.clone());
        let thread = thread::Builder::new().name("zerolane-upload".to_owned());
        let thread = thread.spawn(move || {
            let failures = Failures::default();
            let options = CopyOptions::default();
            let sent = client.put_stream(&input, path.as_bytes(), &options, &failures);
            // From now on a write fails.
            drop(input);
            let done = sent.map_err(Trouble::from).and_then(|_| failures.check());
            let _ = tell.send(done);
        });
        thread.map_err(|_| PyOSError::new_err("the system refuses to start a thread"))?;
        Ok(FileUpload {
            state: Mutex::new(Some(Writing { writer, told })),
            stop,
        })
    }

    /// Removes the file or symbolic link at `path`, or with `recursive` a directory and its contents; with `empty` only an
    /// empty directory.
    #[pyo3(signature = (path, *, recursive=false, empty=false))]
    fn remove(&self, py: Python<'_>, path: OsString, recursive: bool, empty: bool) -> PyResult<()> {
        self.carry_out(py, move |client| {
            let failures = Failures::default();
            let options = RemoveOptions {
                recursive,
                force: false,
                empty,
            };
            client.remove(&[literal(&path)], options, &failures)?;
            failures.check()
        })
    }

    /// Makes a directory; with `parents` also the missing ones above it, and it may exist.
    #[pyo3(signature = (path, *, parents=false))]
    fn make_directory(&self, py: Python<'_>, path: OsString, parents: bool) -> PyResult<()> {
        self.carry_out(py, move |client| {
            let failures = Failures::default();
            client.make_directories(&[path.into_vec()], parents, &failures)?;
            failures.check()
        })
    }

    /// Renames `source` to `target`, or moves it into `target` if that is a directory. `replace`: whether a file that
    /// exists is replaced.
    #[pyo3(signature = (source, target, *, replace=true))]
    fn rename(
        &self,
        py: Python<'_>,
        source: OsString,
        target: OsString,
        replace: bool,
    ) -> PyResult<()> {
        let replace = match replace {
            true => Replace::Writable,
            false => Replace::Nothing,
        };
        self.carry_out(py, move |client| {
            let failures = Failures::default();
            client.rename(source.as_bytes(), target.as_bytes(), replace, &failures)?;
            failures.check()
        })
    }

    /// Closes idle connections. The client can still be used.
    fn close(&self, py: Python<'_>) {
        let idle = std::mem::take(&mut *locked(&self.idle));
        py.detach(|| drop(idle));
    }

    fn __repr__(&self) -> String {
        "FileClient()".to_owned()
    }
}

/// An upload in progress.
struct Writing {
    writer: PipeWriter,
    told: Receiver<Result<(), Trouble>>,
}

/// A file that is being written to a host. Write its content to the descriptor `fileno()`, a pipe, then call `finish`.
/// A write fails with BrokenPipeError when the upload failed; `finish` raises the reason.
#[pyclass(frozen, weakref, module = "zerolane")]
pub(crate) struct FileUpload {
    /// `None` once it is over.
    state: Mutex<Option<Writing>>,
    stop: Stop,
}

/// Waits for the end.
fn ended(py: Python<'_>, told: Receiver<Result<(), Trouble>>) -> PyResult<Result<(), Trouble>> {
    let told = Mutex::new(told);
    let over = Patience::of(None).wait(py, |time| match locked(&told).recv_timeout(time) {
        Ok(done) => Ok(Some(done)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Ok(Some(Err(Error::Internal.into()))),
    })?;
    Ok(over.unwrap_or_else(|| Err(Error::Internal.into())))
}

#[pymethods]
impl FileUpload {
    /// The descriptor to write to. ValueError once the upload is over.
    fn fileno(&self) -> PyResult<i32> {
        let state = locked(&self.state);
        let writing = state.as_ref();
        let over = || PyValueError::new_err("the upload is over");
        Ok(writing.ok_or_else(over)?.writer.as_raw_fd())
    }

    /// Waits until the file is in place. ValueError if the upload is over.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let writing = locked(&self.state).take();
        let over = || PyValueError::new_err("the upload is over");
        let Writing { writer, told } = writing.ok_or_else(over)?;
        drop(writer);
        let done = ended(py, told).inspect_err(|_| self.stop.request())?;
        done.map_err(|trouble| trouble.exception(py))
    }

    /// Ends the upload; what is at the path stays as it is. Does nothing once the upload is over.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.stop.request();
        let Some(Writing { writer, told }) = locked(&self.state).take() else {
            return Ok(());
        };
        let over = ended(py, told);
        // Earlier it would have been the end of the content.
        drop(writer);
        over.map(drop)
    }
}

impl Drop for FileUpload {
    fn drop(&mut self) {
        self.stop.request();
        let state = self.state.get_mut();
        let writing = state.unwrap_or_else(PoisonError::into_inner).take();
        let Some(Writing { writer, told }) = writing else {
            return;
        };
        dropped::warn("a FileUpload was dropped before it was finished: nothing was written");
        // The writer's end would be the end of the content.
        let ended = thread::Builder::new().spawn(move || {
            let _ = told.recv();
            drop(writer);
        });
        drop(ended);
    }
}
