//! Opens the content of a cast: a file, a device, a directory tree, a stream, or memory.
//!
//! The source knows the digest of every chunk before it sends the first. A stream or a tree cannot be read again chunk by
//! chunk, so it is first copied to an unnamed file in the directory for temporary files.

use std::ffi::OsString;
use std::fs::{self, FileType, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;
use zerolane::ExportedRegion;
use zerolane_cast::{Hash, Manifest, hash_of_zeros};

use crate::archive::{Skipped, pack};
use crate::error::Error;
use crate::invitation::{Form, Offer};
use crate::limits::{CHUNKS, LEAST_CHUNK, MOST_CHUNK};
use crate::meta::Meta;
use crate::stamp::Stamp;
use crate::store::Store;

/// How often a stop is looked for while digests are made.
const LOOK: Duration = Duration::from_millis(50);

/// The content of a cast, ready to send.
#[derive(Debug)]
pub struct Content {
    name: OsString,
    form: Form,
    store: Store,
    bytes: u64,
    /// The metadata of a file.
    meta: Option<Meta>,
    /// The entries of a directory that are not cast.
    skipped: Skipped,
    /// The user's file, with its stamp when it was opened.
    stamp: Option<(PathBuf, Stamp)>,
}

impl Content {
    fn new(name: OsString, form: Form, store: Store, bytes: u64) -> Content {
        Content {
            name,
            form,
            store,
            bytes,
            meta: None,
            skipped: Skipped::default(),
            stamp: None,
        }
    }

    /// Opens the file, device or directory at `path`. Packing a directory takes long, so `stop` is asked whether the
    /// user wants to stop.
    ///
    /// # Errors
    /// The path cannot be read, or is of another type. Use [`stream`](Content::stream) for a FIFO and the like.
    pub fn open(path: &Path, stop: &dyn Fn() -> bool) -> Result<Content, Error> {
        let shown = path.display().to_string();
        let name = name_of(path);
        let metadata = fs::metadata(path).map_err(Error::io(&shown))?;
        if metadata.is_dir() {
            return Content::tree(path, name, stop);
        }
        // Opening such a file may block without end, or have side effects.
        check_kind(&shown, metadata.file_type())?;
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(path);
        let mut file = file.map_err(Error::io(&shown))?;
        let metadata = file.metadata().map_err(Error::io(&shown))?;
        let kind = metadata.file_type();
        check_kind(&shown, kind)?;
        if kind.is_block_device() {
            let bytes = file.seek(SeekFrom::End(0)).map_err(Error::io(&shown))?;
            let store = Store::Device(Arc::new(file));
            return Ok(Content::new(name, Form::Bytes, store, bytes));
        }
        let store = Store::File(Arc::new(file));
        Ok(Content {
            meta: Some(Meta::of(&metadata)),
            stamp: Some((path.to_owned(), Stamp::of(&metadata))),
            ..Content::new(name, Form::Bytes, store, metadata.len())
        })
    }

    /// Reads a stream to its end, as content called `name`.
    ///
    /// # Errors
    /// The stream cannot be read, there is no room for its bytes, or it is empty: its writer may have failed.
    pub fn stream(name: String, mut stream: impl Read) -> Result<Content, Error> {
        let what = "storing the stream before the cast";
        let mut spool = tempfile::tempfile().map_err(Error::io(what))?;
        let bytes = io::copy(&mut stream, &mut spool).map_err(Error::io(what))?;
        if bytes == 0 {
            return Err(Error::Empty);
        }
        let store = Store::File(Arc::new(spool));
        Ok(Content::new(name.into(), Form::Bytes, store, bytes))
    }

    fn tree(path: &Path, name: OsString, stop: &dyn Fn() -> bool) -> Result<Content, Error> {
        let what = || format!("packing {}", path.display());
        let mut spool = tempfile::tempfile().map_err(Error::io(what()))?;
        let skipped = pack(path, BufWriter::with_capacity(1 << 20, &spool), stop)?;
        let bytes = spool.seek(SeekFrom::End(0)).map_err(Error::io(what()))?;
        let store = Store::File(Arc::new(spool));
        Ok(Content {
            skipped,
            ..Content::new(name, Form::Tree, store, bytes)
        })
    }

    /// Casts all of `memory`, under `name`. The program must not change it until the cast ends. After that, no thread
    /// of the cast uses it.
    ///
    /// A detected change ends the cast with [`Error::Changed`](crate::Error::Changed).
    #[must_use]
    pub fn memory(name: String, memory: &ExportedRegion) -> Content {
        let store = Store::Memory(memory.clone());
        Content::new(name.into(), Form::Bytes, store, memory.len() as u64)
    }

    /// The last component of its path, in printable form.
    #[must_use]
    pub fn name(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }

    /// The type of the content: a file, a tree or a stream.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Length in bytes; of a tree, that of its archive.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The entries of a directory that are not cast: devices, sockets and FIFOs.
    #[must_use]
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// The offer for hosts.
    pub(crate) fn offer(&self) -> Offer {
        Offer {
            name: self.name.clone().into_vec(),
            form: self.form,
            bytes: self.bytes,
            meta: self.meta,
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Whether the file is another, or has another length or time of change, than when it was opened.
    pub(crate) fn has_changed(&self) -> bool {
        let Store::File(file) = &self.store else {
            return false;
        };
        self.stamp.as_ref().is_some_and(|(path, stamp)| {
            let opened = file.metadata().map(|it| Stamp::of(&it));
            let named = fs::metadata(path).map(|it| Stamp::of(&it));
            ![opened, named]
                .iter()
                .all(|it| it.as_ref().is_ok_and(|it| it == stamp))
        })
    }

    pub(crate) fn chunk_bytes(&self) -> u32 {
        chunk_bytes(self.bytes)
    }

    /// The digests of its chunks, by as many threads as there are processors. `stop` is asked whether the user wants to stop.
    pub(crate) fn manifest(
        &self,
        chunk_bytes: u32,
        arity: u32,
        stop: &dyn Fn() -> bool,
    ) -> Result<Manifest, Error> {
        let chunks = self.bytes.div_ceil(u64::from(chunk_bytes)) as usize;
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let each = chunks.div_ceil(threads).max(1);
        let mut hashes = vec![Hash::default(); chunks];
        let stopped = AtomicBool::new(stop());
        let zeros = hash_of_zeros(chunk_bytes as usize);
        let digest = |first: usize, hashes: &mut [Hash]| -> io::Result<()> {
            let mut buffer = vec![0; chunk_bytes as usize];
            for (index, hash) in (first as u64..).zip(hashes) {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let offset = index * u64::from(chunk_bytes);
                let len = (self.bytes - offset).min(u64::from(chunk_bytes)) as usize;
                if len == buffer.len() && self.store.is_hole(offset, len) {
                    *hash = zeros;
                    continue;
                }
                self.store.read_exact_at(&mut buffer[..len], offset)?;
                *hash = *blake3::hash(&buffer[..len]).as_bytes();
            }
            Ok(())
        };
        let mut done = Ok(());
        thread::scope(|scope| {
            let (told, ended) = channel();
            for (part, hashes) in hashes.chunks_mut(each).enumerate() {
                let (told, digest) = (told.clone(), &digest);
                scope.spawn(move || drop(told.send(digest(part * each, hashes))));
            }
            drop(told);
            loop {
                match ended.recv_timeout(LOOK) {
                    Ok(result) => done = std::mem::replace(&mut done, Ok(())).and(result),
                    Err(RecvTimeoutError::Timeout) => {
                        stopped.fetch_or(stop(), Ordering::Relaxed);
                    }
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        });
        if stopped.into_inner() {
            return Err(Error::Stopped);
        }
        done.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::Changed(self.name()),
            _ => Error::io(format!("reading {}", self.name()))(error),
        })?;
        Ok(Manifest::new(self.bytes, chunk_bytes, arity, hashes)?)
    }
}

/// Whether a file of this kind has content that can be read again.
fn check_kind(shown: &str, kind: FileType) -> Result<(), Error> {
    let what = match kind {
        _ if kind.is_file() || kind.is_block_device() => return Ok(()),
        _ if kind.is_socket() => {
            "is a socket: only a file, a directory or a block device can be cast"
        }
        _ => "is a stream, which must be read to its end before the cast",
    };
    Err(Error::Target(format!("{shown}: {what}")))
}

/// The chunk length for content of `bytes` bytes. Many chunks fill the pipe quickly; few keep their lists short.
#[must_use]
pub fn chunk_bytes(bytes: u64) -> u32 {
    let least = bytes.div_ceil(u64::from(zerolane_cast::limits::MAX_CHUNKS));
    let chunk = (bytes / CHUNKS).clamp(LEAST_CHUNK, MOST_CHUNK).max(least);
    u32::try_from(chunk.next_multiple_of(4096)).unwrap_or(u32::MAX)
}

fn name_of(path: &Path) -> OsString {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole
        .file_name()
        .map_or_else(|| "content".into(), ToOwned::to_owned)
}

#[cfg(test)]
#[path = "content_tests.rs"]
mod tests;
