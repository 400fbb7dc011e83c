//! What is cast: a file, a device, a directory with all that is in it, a stream, or memory.
//!
//! The digests of all chunks are known before the first is sent. A stream and a tree have no place in which a chunk
//! could be read again, so they go to a file without a name first, in the directory for temporary files.

use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use zerolane::ExportedRegion;
use zerolane_cast::{Hash, Manifest};

use crate::error::Error;
use crate::invitation::Form;
use crate::limits::{CHUNKS, LEAST_CHUNK, MOST_CHUNK};
use crate::store::Store;

/// What is cast.
#[derive(Debug)]
pub struct Content {
    name: String,
    form: Form,
    store: Store,
    bytes: u64,
    /// A file of the user's, and what it was when it was opened.
    stamp: Option<(PathBuf, Stamp)>,
}

/// What tells that a file was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Stamp {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(it: &Metadata) -> Stamp {
        Stamp {
            device: it.dev(),
            inode: it.ino(),
            len: it.len(),
            modified: (it.mtime(), it.mtime_nsec()),
            changed: (it.ctime(), it.ctime_nsec()),
        }
    }
}

impl Content {
    /// The file, device or directory at `path`.
    ///
    /// # Errors
    /// It cannot be read, or is none of these.
    pub fn open(path: &Path) -> Result<Content, Error> {
        let shown = path.display().to_string();
        let name = name_of(path);
        let metadata = fs::metadata(path).map_err(Error::io(&shown))?;
        if metadata.is_dir() {
            return Content::tree(path, name);
        }
        let mut file = File::open(path).map_err(Error::io(&shown))?;
        let metadata = file.metadata().map_err(Error::io(&shown))?;
        let kind = metadata.file_type();
        if kind.is_block_device() {
            let bytes = file.seek(SeekFrom::End(0)).map_err(Error::io(&shown))?;
            return Ok(Content {
                name,
                form: Form::Bytes,
                store: Store::File(Arc::new(file)),
                bytes,
                stamp: None,
            });
        }
        if !kind.is_file() {
            return Content::stream(name, file);
        }
        let stamp = Some((path.to_owned(), Stamp::of(&metadata)));
        Ok(Content {
            name,
            form: Form::Bytes,
            store: Store::File(Arc::new(file)),
            bytes: metadata.len(),
            stamp,
        })
    }

    /// What a stream gives, to its end, under `name`.
    ///
    /// # Errors
    /// It cannot be read, or there is no room for it.
    pub fn stream(name: String, mut stream: impl Read) -> Result<Content, Error> {
        let what = "keeping the stream until it is cast";
        let mut spool = tempfile::tempfile().map_err(Error::io(what))?;
        let bytes = io::copy(&mut stream, &mut spool).map_err(Error::io(what))?;
        Ok(Content {
            name,
            form: Form::Bytes,
            store: Store::File(Arc::new(spool)),
            bytes,
            stamp: None,
        })
    }

    fn tree(path: &Path, name: String) -> Result<Content, Error> {
        let what = || format!("packing {}", path.display());
        let mut spool = tempfile::tempfile().map_err(Error::io(what()))?;
        pack(path, BufWriter::with_capacity(1 << 20, &spool))?;
        let bytes = spool.seek(SeekFrom::End(0)).map_err(Error::io(what()))?;
        Ok(Content {
            name,
            form: Form::Tree,
            store: Store::File(Arc::new(spool)),
            bytes,
            stamp: None,
        })
    }

    /// All of `memory`, under `name`. The program lets it be as it is until the cast is over; after that, no thread of
    /// the cast has it.
    ///
    /// What changes meanwhile ends the cast with [`Error::Changed`](crate::Error::Changed), if it is seen.
    #[must_use]
    pub fn memory(name: String, memory: &ExportedRegion) -> Content {
        Content {
            name,
            form: Form::Bytes,
            bytes: memory.len() as u64,
            store: Store::Memory(memory.clone()),
            stamp: None,
        }
    }

    /// The last part of its path.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is beside bytes.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// How many bytes there are: of a tree, those of its archive.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
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

    /// The digests of its chunks, by as many threads as there are processors.
    pub(crate) fn manifest(&self, chunk_bytes: u32, arity: u32) -> Result<Manifest, Error> {
        if self.bytes == 0 {
            return Err(Error::Empty);
        }
        let chunks = self.bytes.div_ceil(u64::from(chunk_bytes)) as usize;
        let threads = thread::available_parallelism()
            .map_or(1, usize::from)
            .min(chunks);
        let each = chunks.div_ceil(threads);
        let mut hashes = vec![Hash::default(); chunks];
        let digest = |first: usize, hashes: &mut [Hash]| -> io::Result<()> {
            let mut buffer = vec![0; chunk_bytes as usize];
            for (index, hash) in (first as u64..).zip(hashes) {
                let offset = index * u64::from(chunk_bytes);
                let len = (self.bytes - offset).min(u64::from(chunk_bytes)) as usize;
                self.store.read_exact_at(&mut buffer[..len], offset)?;
                *hash = *blake3::hash(&buffer[..len]).as_bytes();
            }
            Ok(())
        };
        thread::scope(|scope| {
            let parts = hashes.chunks_mut(each).enumerate();
            let running: Vec<_> = parts
                .map(|(part, hashes)| scope.spawn(move || digest(part * each, hashes)))
                .collect();
            running
                .into_iter()
                .try_for_each(|it| it.join().expect("no panic"))
        })
        .map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::Changed(self.name.clone()),
            _ => Error::io(format!("reading {}", self.name))(error),
        })?;
        Ok(Manifest::new(self.bytes, chunk_bytes, arity, hashes)?)
    }
}

/// Packs a directory. That nothing in it was changed meanwhile is looked at afterwards: a file that grew or shrank has another
/// length in the archive than its entry says.
fn pack(path: &Path, out: impl Write) -> Result<(), Error> {
    let what = || format!("packing {}", path.display());
    let mut before = HashSet::new();
    walk(path, |_, it| before.extend([Stamp::of(it)])).map_err(Error::io(what()))?;
    let mut builder = tar::Builder::new(out);
    builder.follow_symlinks(false);
    let packed = builder.append_dir_all(".", path);
    let packed = packed.and_then(|()| builder.into_inner()?.flush());
    // One that is gone has changed its directory, which is named if no file is.
    let (mut file, mut directory) = (None, None);
    let again = walk(path, |path, it| {
        let changed = if it.is_dir() {
            &mut directory
        } else {
            &mut file
        };
        if changed.is_none() && !before.contains(&Stamp::of(it)) {
            *changed = Some(path.display().to_string());
        }
    });
    match file.or(directory) {
        Some(changed) => Err(Error::Changed(changed)),
        None => packed.and(again).map_err(Error::io(what())),
    }
}

/// Looks at a directory, and all that is in it.
fn walk(path: &Path, mut look: impl FnMut(&Path, &Metadata)) -> io::Result<()> {
    look(path, &path.metadata()?);
    let mut left = vec![path.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let metadata = path.symlink_metadata()?;
            look(&path, &metadata);
            if metadata.is_dir() {
                left.push(path);
            }
        }
    }
    Ok(())
}

/// Bytes of a chunk of a content of so many bytes: many chunks for a pipe that fills quickly, few for lists of them that stay
/// short.
#[must_use]
pub fn chunk_bytes(bytes: u64) -> u32 {
    let least = bytes.div_ceil(u64::from(zerolane_cast::limits::MAX_CHUNKS));
    let chunk = (bytes / CHUNKS).clamp(LEAST_CHUNK, MOST_CHUNK).max(least);
    u32::try_from(chunk.next_multiple_of(4096)).unwrap_or(u32::MAX)
}

fn name_of(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole
        .file_name()
        .map_or_else(|| "content".into(), |it| it.to_string_lossy().into_owned())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Something that happens as soon as the archive begins.
    struct Once<F: FnOnce()>(Option<F>);

    impl<F: FnOnce()> Write for Once<F> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.take().into_iter().for_each(|it| it());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn pack__a_tree_that_changes_meanwhile_is_an_error_that_names_what() {
        let changed = |change: fn(&Path)| {
            let tree = tempfile::tempdir().unwrap();
            let tree = tree.path();
            fs::create_dir(tree.join("a")).unwrap();
            fs::write(tree.join("a/file"), [1; 3000]).unwrap();
            std::os::unix::fs::symlink("nowhere", tree.join("link")).unwrap();
            // A clock of few ticks may have the same time for what comes now.
            let directory = File::open(tree.join("a")).unwrap();
            directory.set_modified(std::time::UNIX_EPOCH).unwrap();
            match pack(tree, Once(Some(|| change(tree)))) {
                Ok(()) => None,
                Err(Error::Changed(what)) => {
                    let what = Path::new(&what).strip_prefix(tree).unwrap();
                    Some(what.display().to_string())
                }
                Err(error) => panic!("{error}"),
            }
        };
        let named = |path: &str| Some(path.to_owned());
        assert_eq!(changed(|_| {}), None);
        fn set_len(tree: &Path, len: u64) {
            let file = File::options().write(true).open(tree.join("a/file"));
            file.unwrap().set_len(len).unwrap();
        }
        assert_eq!(changed(|it| set_len(it, 5000)), named("a/file"));
        assert_eq!(changed(|it| set_len(it, 1000)), named("a/file"));
        assert_eq!(
            changed(|it| fs::write(it.join("a/new"), []).unwrap()),
            named("a/new")
        );
        assert_eq!(
            changed(|it| fs::remove_file(it.join("a/file")).unwrap()),
            named("a")
        );
    }
}
