//! Where content goes.
//!
//! A file is received into a partial one beside it, and renamed at its end: what was there stays whole until then.
//! Beside that lies the list of the digests, by which another try finds out what of the partial file is good: it
//! believes no bitmap, so nothing depends on what reached the disk in which order. A tree, standard output and a
//! command read the content in order from such a file ([`Feed`]).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::{self, JoinHandle};

use zerolane::{ExportedRegion, Waker};
use zerolane_cast::{Bitmap, Hash, Header, Manifest, Stored};

use crate::error::Error;
use crate::feed::{Feed, FeedReader};
use crate::invitation::Form;
use crate::store::Store;

/// Where content is to go.
#[derive(Clone, Debug)]
pub enum Destination {
    /// To this path; if it is a directory, under the content's name in it.
    Path {
        /// The path.
        path: PathBuf,
        /// What is there already is replaced.
        force: bool,
    },
    /// To standard output: a tree as its archive.
    Stdout,
    /// To the standard input of this command of the shell: a tree as its archive.
    Command(String),
    /// Into this memory, from its start on: a tree as its archive. It may be longer than the content. After
    /// [`Receiver::run`](crate::Receiver::run), whatever it returns, no thread of the cast has it.
    Memory(ExportedRegion),
}

/// A target that is received into.
#[derive(Debug)]
pub(crate) struct Target {
    store: Store,
    place: Place,
    /// What an earlier try left.
    stored: Option<Stored>,
    feed: Arc<Feed>,
    /// What reads the content in order.
    reader: Option<JoinHandle<Result<(), Error>>>,
}

/// Content that is being put in its place.
#[derive(Debug)]
pub(crate) struct Finishing(Receiver<Result<(), Error>>);

impl Finishing {
    /// How it ended, if it has.
    pub(crate) fn end(&self) -> Option<Result<(), Error>> {
        match self.0.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Error::Target(
                "putting the content in its place panicked".into(),
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
    /// The same; nothing more is to be done.
    Memory,
    /// Unpacked beside, and renamed at the end.
    Tree(Paths),
    /// Read by something else; what it is kept in has no name.
    Stream,
}

#[derive(Clone, Debug)]
struct Paths {
    last: PathBuf,
    partial: PathBuf,
    list: PathBuf,
    unpacked: PathBuf,
    force: bool,
}

impl Paths {
    fn of(last: PathBuf, force: bool) -> Paths {
        let name = last
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let beside = |suffix: &str| last.with_file_name(format!(".{name}.zerolane-{suffix}"));
        Paths {
            partial: beside("part"),
            list: beside("list"),
            unpacked: beside("tree"),
            last,
            force,
        }
    }
}

impl Destination {
    /// Whether it can be said before a source calls that it cannot be received into.
    ///
    /// # Errors
    /// What is there stays.
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

    /// Opens the target for content of this name and form.
    pub(crate) fn open(&self, name: &str, form: Form, bytes: u64) -> Result<Target, Error> {
        match self {
            Destination::Path { path, force } => {
                let last = match path.is_dir() {
                    true => path.join(safe_name(name)?),
                    false => path.clone(),
                };
                open_at(last, *force, form, bytes)
            }
            Destination::Memory(memory) => {
                let room = memory.len() as u64;
                if room < bytes {
                    return Err(Error::Target(format!(
                        "the memory has {room} bytes, and the content has {bytes}"
                    )));
                }
                Ok(Target {
                    store: Store::Memory(memory.clone()),
                    place: Place::Memory,
                    stored: None,
                    feed: Arc::default(),
                    reader: None,
                })
            }
            Destination::Stdout => {
                let (mut target, file) = Target::without_name()?;
                target.read_by(file, |mut content| {
                    let mut out = io::stdout().lock();
                    io::copy(&mut content, &mut out)
                        .and_then(|_| out.flush())
                        .map_err(Error::io("standard output"))
                })?;
                Ok(target)
            }
            Destination::Command(command) => {
                let (mut target, file) = Target::without_name()?;
                let command = command.clone();
                target.read_by(file, move |content| run(&command, content))?;
                Ok(target)
            }
        }
    }
}

/// A name that names something in a directory, and nothing outside of it.
fn safe_name(name: &str) -> Result<&str, Error> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(_)), None) if !name.contains(['/', '\0']) && name.len() <= 200 => {
            Ok(name)
        }
        _ => Err(Error::Target(format!(
            "{name:?} is no name for a file: say one with --to"
        ))),
    }
}

fn open_at(last: PathBuf, force: bool, form: Form, bytes: u64) -> Result<Target, Error> {
    let shown = last.display().to_string();
    let there = last.symlink_metadata().ok();
    let device = last
        .metadata()
        .is_ok_and(|it| it.file_type().is_block_device());
    if there.is_some() && !force {
        return Err(Error::Exists(last));
    }
    if device && form == Form::Bytes {
        return open_device(&last, bytes);
    }
    if there.is_some_and(|it| it.is_dir() != (form == Form::Tree)) {
        return Err(Error::Target(format!(
            "{shown}: is there already, and of another kind"
        )));
    }
    let paths = Paths::of(last, force);
    let partial = paths.partial.display().to_string();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.open(&paths.partial).map_err(Error::io(&partial))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(Error::Busy(paths.last)),
        Err(TryLockError::Error(error)) => return Err(Error::io(&partial)(error)),
    }
    let file = Arc::new(file);
    let stored = stored(&file, &paths.list, bytes);
    file.set_len(bytes).map_err(Error::io(&partial))?;
    let place = match form {
        Form::Bytes => Place::File(paths.clone()),
        Form::Tree => Place::Tree(paths.clone()),
    };
    let mut target = Target {
        store: Store::File(Arc::clone(&file)),
        place,
        stored,
        feed: Arc::default(),
        reader: None,
    };
    if form == Form::Tree {
        target.read_by(file, move |content| unpack(&paths.unpacked, content))?;
    }
    Ok(target)
}

fn open_device(path: &Path, bytes: u64) -> Result<Target, Error> {
    use std::io::{Seek, SeekFrom};
    let shown = path.display().to_string();
    let file = OpenOptions::new().read(true).write(true).open(path);
    let mut file = file.map_err(Error::io(&shown))?;
    let room = file.seek(SeekFrom::End(0)).map_err(Error::io(&shown))?;
    if room < bytes {
        return Err(Error::Target(format!(
            "{shown}: has {room} bytes, and the content has {bytes}"
        )));
    }
    let file = Arc::new(file);
    Ok(Target {
        store: Store::File(file),
        place: Place::Device,
        stored: None,
        feed: Arc::default(),
        reader: None,
    })
}

/// The chunks of a partial file that have their digests.
fn stored(file: &File, list: &Path, bytes: u64) -> Option<Stored> {
    let (header, hashes): (Header, Vec<Hash>) = postcard::from_bytes(&fs::read(list).ok()?).ok()?;
    let manifest = Manifest::covered(header, hashes)
        .ok()
        .filter(|_| header.bytes == bytes)?;
    let mut has = Bitmap::empty(header.chunks());
    let mut buffer = vec![0; header.chunk_bytes as usize];
    for chunk in 0..header.chunks() {
        let content = &mut buffer[..header.bytes_of(chunk)];
        let offset = u64::from(chunk) * u64::from(header.chunk_bytes);
        if file.read_exact_at(content, offset).is_ok() && manifest.check(chunk, content).is_ok() {
            has.insert(chunk);
        }
    }
    (!has.is_empty()).then_some(Stored {
        root: header.root,
        has,
    })
}

fn unpack(into: &Path, content: FeedReader) -> Result<(), Error> {
    let what = || format!("unpacking into {}", into.display());
    if into.symlink_metadata().is_ok() {
        fs::remove_dir_all(into).map_err(Error::io(what()))?;
    }
    fs::create_dir(into).map_err(Error::io(what()))?;
    let mut archive = tar::Archive::new(content);
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(true);
    archive.unpack(into).map_err(Error::io(what()))?;
    // What follows the last entry belongs to the archive.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(Error::io(what()))?;
    Ok(())
}

fn run(command: &str, mut content: FeedReader) -> Result<(), Error> {
    let child = Command::new("sh")
        .arg("-c")
        .arg(command)
        .stdin(Stdio::piped())
        .spawn();
    let mut child = child.map_err(Error::io("sh"))?;
    let mut input = child.stdin.take();
    let copied = input
        .as_mut()
        .map_or(Ok(0), |input| io::copy(&mut content, input));
    drop(input);
    if let Err(error) = &copied
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        // It must not take a part for the whole.
        let _ = child.kill();
    }
    let status = child.wait().map_err(Error::io("waiting for the command"))?;
    match (status.success(), copied) {
        (true, Ok(_)) => Ok(()),
        (true, Err(error)) => Err(Error::io("the command did not read all")(error)),
        (false, _) => Err(Error::Command(format!("the command ended with {status}"))),
    }
}

impl Target {
    fn without_name() -> Result<(Target, Arc<File>), Error> {
        let file = tempfile::tempfile().map_err(Error::io("keeping the content for its reader"))?;
        let file = Arc::new(file);
        let target = Target {
            store: Store::File(Arc::clone(&file)),
            place: Place::Stream,
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

    /// What an earlier try left.
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

    /// Keeps what is cast, for another try.
    pub(crate) fn keep(&self, manifest: &Manifest) -> Result<(), Error> {
        let (Place::File(paths) | Place::Tree(paths)) = &self.place else {
            return Ok(());
        };
        let bytes = postcard::to_allocvec(&(manifest.header(), manifest.hashes()));
        let bytes = bytes.expect("a list in memory has a form in a file");
        fs::write(&paths.list, bytes).map_err(Error::io(paths.list.display().to_string()))
    }

    /// So many bytes from the start on are in the file.
    pub(crate) fn advance(&self, ready: u64) {
        self.feed.advance(ready);
    }

    /// Whether what reads it has ended before all was there: it failed.
    pub(crate) fn reader_has_ended(&self) -> bool {
        self.reader.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// All is in the store: puts it in its place, in a thread that uses `waker` at its end.
    pub(crate) fn finish(self, bytes: u64, waker: Waker) -> Result<Finishing, Error> {
        self.feed.complete(bytes);
        let (told, result) = channel();
        let thread = thread::Builder::new().name("cast-finish".into());
        let work = move || {
            // One that has failed for another reason does not wait.
            let _ = told.send(self.put_in_place());
            waker.wake();
        };
        thread.spawn(work).map_err(Error::io("starting a thread"))?;
        Ok(Finishing(result))
    }

    fn sync(&self, what: &str) -> Result<(), Error> {
        match &self.store {
            Store::File(file) => file.sync_all().map_err(Error::io(what)),
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

    /// It will not be complete: what reads it ends. A partial file stays, for another try.
    pub(crate) fn give_up(&mut self) -> Option<Error> {
        self.feed.give_up();
        self.reader.take()?.join().ok()?.err()
    }
}

/// Renames; without `force` nothing is replaced that came meanwhile.
fn rename(from: &Path, to: &Path, force: bool) -> Result<(), Error> {
    let shown = || to.display().to_string();
    if force {
        return fs::rename(from, to).map_err(Error::io(shown()));
    }
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from).map_err(Error::io(shown())),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(Error::Exists(to.to_owned()))
        }
        // A file system without links.
        Err(_) if to.symlink_metadata().is_err() => {
            fs::rename(from, to).map_err(Error::io(shown()))
        }
        Err(_) => Err(Error::Exists(to.to_owned())),
    }
}

fn replace_tree(paths: &Paths) -> Result<(), Error> {
    let shown = || paths.last.display().to_string();
    let there = paths.last.symlink_metadata().is_ok();
    if there && !paths.force {
        return Err(Error::Exists(paths.last.clone()));
    }
    let old = paths.unpacked.with_extension("zerolane-old");
    if there {
        fs::rename(&paths.last, &old).map_err(Error::io(shown()))?;
    }
    fs::rename(&paths.unpacked, &paths.last).map_err(Error::io(shown()))?;
    if there {
        fs::remove_dir_all(&old).map_err(Error::io(old.display().to_string()))?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn safe_name__names_nothing_outside() {
        for name in ["", ".", "..", "/", "a/b", "../a", "/a", "a/", "a\0"] {
            assert!(safe_name(name).is_err(), "{name:?}");
        }
        assert!(safe_name("disk image.raw").is_ok());
    }

    #[test]
    fn stored__only_chunks_that_have_their_digests() {
        let directory = tempfile::tempdir().unwrap();
        let (path, list) = (directory.path().join("part"), directory.path().join("list"));
        let content: Vec<u8> = (0..1000u32).map(|it| (it * 7) as u8).collect();
        let manifest = Manifest::of(&content, 300, 1).unwrap();
        fs::write(
            &list,
            postcard::to_allocvec(&(manifest.header(), manifest.hashes())).unwrap(),
        )
        .unwrap();
        let mut partial = content.clone();
        partial[299] ^= 1;
        partial[650..].fill(0);
        fs::write(&path, partial).unwrap();
        let file = File::open(&path).unwrap();
        let found = stored(&file, &list, 1000).unwrap();
        let has: Vec<u32> = (0..4).filter(|it| found.has.contains(*it)).collect();
        assert_eq!((found.root, has), (manifest.header().root, vec![1]));
        assert_eq!(stored(&file, &list, 999), None, "another content");
    }
}
