//! Writes received content to its destination: a file, a tree, a device, standard output, a command, or memory.
//!
//! A file is received into a partial file beside it and renamed at the end, so the old file stays whole until then. A list
//! of digests lies beside the partial file. The next attempt checks the partial file against this list and trusts no bitmap,
//! so the order in which data reached the disk does not matter. A tree, standard output and a command read the content in
//! order from such a file ([`Feed`]).

mod beside;
mod family;
mod looking;
mod opening;
mod paths;
mod reading;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use zerolane::{ExportedRegion, Waker};
use zerolane_cast::{Manifest, Stored};

use crate::error::Error;
use crate::feed::{Feed, FeedReader};
use crate::invitation::{Offer, shown};
use crate::limits::READER_PATIENCE;
use crate::meta::Meta;
use crate::store::Store;
use beside::{replace, stands_at};
use looking::Looking;
use opening::open_at;
use paths::{Paths, rename, replace_tree, safe_name};
use reading::run;

/// The destination of received content.
#[derive(Clone, Debug)]
pub enum Destination {
    /// To this path; if it is a directory, under the content's name in it.
    Path {
        /// The path.
        path: PathBuf,
        /// Whether to replace an existing file or tree.
        force: bool,
    },
    /// To standard output: a tree as its archive.
    Stdout,
    /// The standard input of this shell command. It receives a tree as an archive.
    Command(String),
    /// This memory, from its start on. It may be longer than the content, and receives a tree as an archive. After
    /// [`Receiver::run`](crate::Receiver::run), whatever it returns, no thread of the cast uses the memory.
    Memory(ExportedRegion),
}

/// A target that is received into.
#[derive(Debug)]
pub(crate) struct Target {
    /// Its name in error messages.
    name: String,
    store: Store,
    place: Place,
    /// The metadata to give a file.
    meta: Option<Meta>,
    /// The check of an earlier attempt.
    looking: Option<Looking>,
    /// The state of an earlier attempt.
    stored: Option<Stored>,
    feed: Arc<Feed>,
    /// The thread that reads the content in order.
    reader: Option<JoinHandle<Result<(), Error>>>,
}

/// Content that is being put in its place.
#[derive(Debug)]
pub(crate) struct Finishing {
    result: Receiver<Result<(), Error>>,
    feed: Arc<Feed>,
    /// Whether another program reads it, at its own pace.
    is_read: bool,
}

impl Finishing {
    /// Ends the reader of the content, even if it has not read all.
    pub(crate) fn give_up(self) {
        self.feed.give_up();
        if self.is_read {
            let _ = self.result.recv_timeout(READER_PATIENCE);
        }
    }

    /// How it ended, if it has.
    pub(crate) fn end(&self) -> Option<Result<(), Error>> {
        match self.result.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Error::Target(
                "the thread that writes the content panicked".into(),
            ))),
        }
    }
}

#[derive(Clone, Debug)]
enum Place {
    /// Renamed at the end.
    File(Paths),
    /// Written where it is.
    Device,
    /// The same, with nothing left to do.
    Memory,
    /// Unpacked beside, and renamed at the end.
    Tree(Paths),
    /// A stream for another reader, kept in an unnamed file.
    Stream,
}

impl Destination {
    /// Whether it can be said before a source calls that it cannot be received into.
    ///
    /// # Errors
    /// The destination exists and must not be replaced.
    pub fn check(&self) -> Result<(), Error> {
        match self {
            Destination::Path { path, force: false }
                if path.symlink_metadata().is_ok() && !path.is_dir() =>
            {
                Err(Error::Exists(path.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Opens the target for an offer. A thread checks the earlier attempt, and uses `waker` when it is done.
    pub(crate) fn open(&self, offer: &Offer, waker: Waker) -> Result<Target, Error> {
        let name = shown(&String::from_utf8_lossy(&offer.name));
        match self {
            Destination::Path { path, force } => {
                let last = match path.is_dir() {
                    true => path.join(safe_name(&offer.name)?),
                    false => path.clone(),
                };
                open_at(last, *force, offer, waker)
            }
            Destination::Memory(memory) => {
                let (room, bytes) = (memory.len() as u64, offer.bytes);
                if room < bytes {
                    return Err(Error::Target(format!(
                        "the content has {bytes} bytes, and the memory only {room}"
                    )));
                }
                Ok(Target {
                    name: format!("the memory for {name}"),
                    store: Store::Memory(memory.clone()),
                    place: Place::Memory,
                    meta: None,
                    looking: None,
                    stored: None,
                    feed: Arc::default(),
                    reader: None,
                })
            }
            Destination::Stdout => {
                let (mut target, file) = Target::without_name(&name)?;
                target.read_by(file, |mut content| {
                    let mut out = io::stdout().lock();
                    io::copy(&mut content, &mut out)
                        .and_then(|_| out.flush())
                        .map_err(Error::io("standard output"))
                })?;
                Ok(target)
            }
            Destination::Command(command) => {
                let (mut target, file) = Target::without_name(&name)?;
                let command = command.clone();
                target.read_by(file, move |content| run(&command, content))?;
                Ok(target)
            }
        }
    }
}

impl Target {
    fn without_name(content: &str) -> Result<(Target, Arc<File>), Error> {
        let file = tempfile::tempfile().map_err(Error::io("storing the content for its reader"))?;
        let file = Arc::new(file);
        let target = Target {
            name: format!("the file that stores {content} for its reader"),
            store: Store::File(Arc::clone(&file)),
            place: Place::Stream,
            meta: None,
            looking: None,
            stored: None,
            feed: Arc::default(),
            reader: None,
        };
        Ok((target, file))
    }

    /// Has the content read in order, by a thread.
    fn read_by(
        &mut self,
        file: Arc<File>,
        work: impl FnOnce(FeedReader) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        let feed = Arc::clone(&self.feed);
        let thread = thread::Builder::new().name("cast-feed".into());
        let thread = thread.spawn(move || work(FeedReader { feed, file, at: 0 }));
        self.reader = Some(thread.map_err(Error::io("starting a thread"))?);
        Ok(())
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn name(&self) -> String {
        self.name.clone()
    }

    /// Whether the check of an earlier attempt is complete.
    pub(crate) fn has_looked(&mut self) -> bool {
        if let Some(found) = self.looking.as_mut().and_then(Looking::end) {
            self.looking = None;
            self.stored = found;
        }
        self.looking.is_none()
    }

    /// Bytes checked so far.
    pub(crate) fn looked_at(&self) -> u64 {
        self.looking.as_ref().map_or(0, Looking::bytes)
    }

    /// The chunks of an earlier attempt, once known.
    pub(crate) fn stored(&self) -> Option<&Stored> {
        self.stored.as_ref()
    }

    /// Where it will be.
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::File(paths) | Place::Tree(paths) => Some(&paths.last),
            Place::Device | Place::Memory | Place::Stream => None,
        }
    }

    /// Keeps the received content for another attempt. From here on the partial file is one of it.
    pub(crate) fn keep(&self, manifest: &Manifest) -> Result<(), Error> {
        let (Place::File(paths) | Place::Tree(paths), Store::File(file)) =
            (&self.place, &self.store)
        else {
            return Ok(());
        };
        let resized = file.set_len(manifest.header().bytes);
        resized.map_err(Error::io(paths.partial.display().to_string()))?;
        let bytes = postcard::to_allocvec(&(manifest.header(), manifest.hashes()));
        let bytes = bytes.expect("a list in memory has a form in a file");
        replace(&paths.list, &bytes)
    }

    /// So many bytes from the start on are in the file.
    pub(crate) fn advance(&self, ready: u64) {
        self.feed.advance(ready);
    }

    /// Whether the reader ended before the content was complete, which is a failure.
    pub(crate) fn reader_has_ended(&self) -> bool {
        self.reader.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// All is in the store: puts it in its place, in a thread that uses `waker` at its end.
    pub(crate) fn finish(self, bytes: u64, waker: Waker) -> Result<Finishing, Error> {
        self.feed.complete(bytes);
        let (feed, is_read) = (Arc::clone(&self.feed), self.reader.is_some());
        let (told, result) = channel();
        let thread = thread::Builder::new().name("cast-finish".into());
        let work = move || {
            // One that has failed for another reason does not wait.
            let _ = told.send(self.put_in_place());
            waker.wake();
        };
        thread.spawn(work).map_err(Error::io("starting a thread"))?;
        Ok(Finishing {
            result,
            feed,
            is_read,
        })
    }

    fn sync(&self, what: &str) -> Result<(), Error> {
        match &self.store {
            Store::File(file) | Store::Device(file) => file.sync_all().map_err(Error::io(what)),
            Store::Memory(_) => Ok(()),
        }
    }

    fn put_in_place(mut self) -> Result<(), Error> {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap_or_else(|_| {
                Err(Error::Target("the reader of the content panicked".into()))
            })?;
        }
        match &self.place {
            Place::File(paths) => {
                let last = || paths.last.display().to_string();
                if let Store::File(file) = &self.store {
                    let meta = self.meta.map_or(Ok(()), |it| it.set(file));
                    meta.map_err(|it| Error::io(last())(it.into()))?;
                    let there = file.metadata().map_err(Error::io(last()))?;
                    if !stands_at(&paths.partial, &there) {
                        return Err(Error::InTheWay(paths.partial.clone()));
                    }
                }
                self.sync(&last())?;
                rename(&paths.partial, &paths.last, paths.force)?;
                // What is left of it does no harm.
                let _ = fs::remove_file(&paths.list);
            }
            Place::Tree(paths) => {
                replace_tree(paths)?;
                let _ = fs::remove_file(&paths.list);
                let _ = fs::remove_file(&paths.partial);
            }
            Place::Device => self.sync("the device")?,
            Place::Memory | Place::Stream => {}
        }
        Ok(())
    }

    /// It will not be complete: what reads it ends, or is left where it is blocked. A partial file that has content stays, for
    /// another try.
    pub(crate) fn give_up(&mut self) -> Option<Error> {
        self.feed.give_up();
        let why = self.end_reader();
        // While the file is locked: without, another process may use it.
        self.remove_if_empty();
        self.looking = None;
        why
    }

    /// Removes a partial file into which nothing came, and what lies beside it.
    fn remove_if_empty(&self) {
        use std::os::unix::fs::MetadataExt;
        if let (Place::File(paths) | Place::Tree(paths), Store::File(file)) =
            (&self.place, &self.store)
            && let Ok(there) = file.metadata()
            && there.blocks() == 0
            && stands_at(&paths.partial, &there)
        {
            // What cannot be removed does no harm.
            let _ = fs::remove_dir(&paths.unpacked);
            let _ = fs::remove_file(&paths.list);
            let _ = fs::remove_file(&paths.partial);
        }
    }

    /// Why the reader failed, if it did.
    fn end_reader(&mut self) -> Option<Error> {
        let reader = self.reader.take()?;
        let until = Instant::now() + READER_PATIENCE;
        while !reader.is_finished() && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        match reader.is_finished() {
            true => reader.join().ok()?.err(),
            false => None,
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.give_up();
    }
}
