//! Packs a directory tree into an archive, in the order of a walk.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};

use super::{BLOCK, MAX_STRETCHES, records};
use crate::error::Error;
use crate::meta::Meta;
use crate::stamp::Stamp;

/// Most skipped entries listed by name; further ones are only counted.
const MOST_NAMED: usize = 100;

/// Entries of a directory that an archive leaves out: devices, sockets and FIFOs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// The paths of the first hundred.
    pub named: Vec<PathBuf>,
    /// The number of all such entries.
    pub count: u64,
}

impl Skipped {
    fn add(&mut self, path: &Path) {
        self.count += 1;
        if self.named.len() < MOST_NAMED {
            self.named.push(path.to_owned());
        }
    }
}

/// Packs a directory, then checks that nothing in it changed meanwhile. `stop` says whether the user wants to stop.
pub(crate) fn pack(
    path: &Path,
    out: impl Write,
    stop: &dyn Fn() -> bool,
) -> Result<Skipped, Error> {
    let packed = pack_unchanged(path, out, stop);
    match stop() {
        true => Err(Error::Stopped),
        false => packed,
    }
}

fn pack_unchanged(path: &Path, out: impl Write, stop: &dyn Fn() -> bool) -> Result<Skipped, Error> {
    let what = |path: &Path| Error::io(format!("packing {}", path.display()));
    let mut before = HashSet::new();
    walk(path, stop, |_, it| before.extend([Stamp::of(it)])).map_err(what(path))?;
    let mut packing = Packing {
        builder: Builder::new(out),
        first_names: HashMap::new(),
        skipped: Skipped::default(),
        at: path.to_owned(),
        stop,
    };
    let root = path.metadata().map_err(what(path))?;
    let packed = packing.directory(path, b"", &root);
    let Packing {
        at,
        builder,
        skipped,
        ..
    } = packing;
    let packed = packed
        .and_then(|()| builder.into_inner()?.flush())
        .map_err(what(&at));
    // One that is gone has changed its directory, which is named if no file is.
    let (mut file, mut directory) = (None, None);
    let again = walk(path, stop, |path, it| {
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
        None => packed.and(again.map_err(what(path))).map(|()| skipped),
    }
}

/// Whether an archive includes it: a directory, file or symbolic link.
fn is_packed(it: &Metadata) -> bool {
    it.is_dir() || it.is_file() || it.is_symlink()
}

/// Looks at a directory, and all in it that is packed.
fn walk(
    path: &Path,
    stop: &dyn Fn() -> bool,
    mut look: impl FnMut(&Path, &Metadata),
) -> io::Result<()> {
    look(path, &path.metadata()?);
    let mut left = vec![path.to_owned()];
    while let Some(directory) = left.pop() {
        check(stop)?;
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let metadata = path.symlink_metadata()?;
            if is_packed(&metadata) {
                look(&path, &metadata);
            }
            if metadata.is_dir() {
                left.push(path);
            }
        }
    }
    Ok(())
}

fn check(stop: &dyn Fn() -> bool) -> io::Result<()> {
    match stop() {
        true => Err(io::Error::other("stopped")),
        false => Ok(()),
    }
}

struct Packing<'a, W: Write> {
    builder: Builder<W>,
    /// Of files with several names: the one under which they are in the archive.
    first_names: HashMap<(u64, u64), Vec<u8>>,
    skipped: Skipped,
    /// The path being packed, for error messages.
    at: PathBuf,
    stop: &'a dyn Fn() -> bool,
}

impl<W: Write> Packing<'_, W> {
    /// Packs a directory and all that is in it; `name` is empty for the one that is cast.
    fn directory(&mut self, path: &Path, name: &[u8], metadata: &Metadata) -> io::Result<()> {
        path.clone_into(&mut self.at);
        check(self.stop)?;
        let mut entry = Entry::new(EntryType::Directory, metadata);
        entry.name(&[if name.is_empty() { b"." } else { name }, b"/"].concat());
        entry.put(&mut self.builder, 0, io::empty())?;
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            names.push(entry?.file_name());
        }
        names.sort();
        for own in names {
            let inside = match name {
                b"" => own.as_bytes().to_vec(),
                name => [name, b"/", own.as_bytes()].concat(),
            };
            self.one(&path.join(&own), &inside)?;
        }
        Ok(())
    }

    fn one(&mut self, path: &Path, name: &[u8]) -> io::Result<()> {
        path.clone_into(&mut self.at);
        let metadata = path.symlink_metadata()?;
        if metadata.is_dir() {
            self.directory(path, name, &metadata)
        } else if metadata.is_symlink() {
            let mut entry = Entry::new(EntryType::Symlink, &metadata);
            entry.name(name);
            entry.link(fs::read_link(path)?.as_os_str());
            entry.put(&mut self.builder, 0, io::empty())
        } else if metadata.is_file() {
            self.file(path, name)
        } else {
            self.skipped.add(path);
            Ok(())
        }
    }

    fn file(&mut self, path: &Path, name: &[u8]) -> io::Result<()> {
        // Do not wait for a FIFO or the like that has taken its place meanwhile.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("is no longer a file"));
        }
        if metadata.nlink() > 1 {
            let known = (metadata.dev(), metadata.ino());
            if let Some(first) = self.first_names.get(&known) {
                let mut entry = Entry::new(EntryType::Link, &metadata);
                entry.name(name);
                entry.link(OsStr::from_bytes(first));
                return entry.put(&mut self.builder, 0, io::empty());
            }
            self.first_names.insert(known, name.to_vec());
        }
        let len = metadata.len();
        let stretches = stretches_of(&file, &metadata);
        let data = Data {
            file: &file,
            stretches: &stretches,
            done: 0,
            stop: self.stop,
        };
        let mut entry = Entry::new(EntryType::Regular, &metadata);
        if stretches == [(0, len)] || len == 0 {
            entry.name(name);
            return entry.put(&mut self.builder, len, data);
        }
        entry.sparse(name, len);
        let map = map_of(&stretches);
        let size = map.len() as u64 + stretches.iter().map(|it| it.1).sum::<u64>();
        entry.put(&mut self.builder, size, map.as_slice().chain(data))
    }
}

/// An entry that is made.
struct Entry {
    header: Header,
    records: Vec<(&'static str, Vec<u8>)>,
}

impl Entry {
    fn new(kind: EntryType, metadata: &Metadata) -> Entry {
        let mut header = Header::new_ustar();
        let meta = Meta::of(metadata);
        header.set_entry_type(kind);
        header.set_mode(meta.mode);
        header.set_uid(metadata.uid().into());
        header.set_gid(metadata.gid().into());
        header.set_mtime(u64::try_from(meta.seconds).unwrap_or(0));
        let mut records = Vec::new();
        if meta.nanoseconds != 0 || meta.seconds < 0 {
            let time = records::time((meta.seconds, meta.nanoseconds));
            records.push(("mtime", time.into_bytes()));
        }
        Entry { header, records }
    }

    fn name(&mut self, name: &[u8]) {
        if !fit(&mut self.header.as_old_mut().name, name) {
            self.records.push(("path", name.to_vec()));
        }
    }

    fn link(&mut self, to: &OsStr) {
        if !fit(&mut self.header.as_old_mut().linkname, to.as_bytes()) {
            self.records.push(("linkpath", to.as_bytes().to_vec()));
        }
    }

    /// Records that a file has holes, and its length with them.
    fn sparse(&mut self, name: &[u8], len: u64) {
        fit(&mut self.header.as_old_mut().name, name);
        self.records.extend([
            ("GNU.sparse.major", b"1".to_vec()),
            ("GNU.sparse.minor", b"0".to_vec()),
            ("GNU.sparse.name", name.to_vec()),
            ("GNU.sparse.realsize", len.to_string().into_bytes()),
        ]);
    }

    fn put(
        mut self,
        builder: &mut Builder<impl Write>,
        size: u64,
        data: impl Read,
    ) -> io::Result<()> {
        let records = self.records.iter();
        builder.append_pax_extensions(records.map(|(key, value)| (*key, &value[..])))?;
        self.header.set_size(size);
        self.header.set_cksum();
        builder.append(&self.header, data)
    }
}

/// Copies as much of `name` as fits into a field. Returns whether all of it fits.
fn fit(field: &mut [u8], name: &[u8]) -> bool {
    let len = name.len().min(field.len());
    field[..len].copy_from_slice(&name[..len]);
    len == name.len()
}

/// Where a file has data: from where on, and how much. A file system that does not tell has no holes.
fn stretches_of(file: &File, metadata: &Metadata) -> Vec<(u64, u64)> {
    let len = metadata.len();
    if metadata.blocks().saturating_mul(512) >= len {
        return vec![(0, len)];
    }
    let mut stretches = Vec::new();
    let mut end = 0;
    while end < len {
        let begin = match seek(file, SeekFrom::Data(end)) {
            Ok(begin) => begin.max(end),
            Err(Errno::NXIO) => break,
            Err(_) => end,
        };
        let hole = seek(file, SeekFrom::Hole(begin)).ok();
        let hole = hole.filter(|it| *it > begin && stretches.len() + 1 < MAX_STRETCHES);
        end = hole.unwrap_or(len).min(len);
        if begin >= end {
            // It became shorter.
            break;
        }
        stretches.push((begin, end - begin));
    }
    if end < len {
        // The format wants it to end in a stretch.
        stretches.push((len, 0));
    }
    stretches
}

/// The map in front of the data of a file with holes.
fn map_of(stretches: &[(u64, u64)]) -> Vec<u8> {
    let mut map = format!("{}\n", stretches.len());
    for (begin, len) in stretches {
        map.push_str(&format!("{begin}\n{len}\n"));
    }
    let mut map = map.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    map
}

/// The data of a file: exactly as much as was said of it.
struct Data<'a> {
    file: &'a File,
    stretches: &'a [(u64, u64)],
    /// Of the first stretch.
    done: u64,
    stop: &'a dyn Fn() -> bool,
}

impl Read for Data<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        check(self.stop)?;
        loop {
            let Some((begin, len)) = self.stretches.first() else {
                return Ok(0);
            };
            if self.done == *len {
                (self.stretches, self.done) = (&self.stretches[1..], 0);
                continue;
            }
            let left = usize::try_from(len - self.done).unwrap_or(usize::MAX);
            let most = left.min(into.len());
            let read = self.file.read_at(&mut into[..most], begin + self.done)?;
            if read == 0 && most > 0 {
                return Err(io::Error::other("became shorter while it was packed"));
            }
            self.done += read as u64;
            return Ok(read);
        }
    }
}

#[cfg(test)]
#[path = "pack_tests.rs"]
mod tests;
