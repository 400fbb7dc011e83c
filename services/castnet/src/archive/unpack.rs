//! Unpacks an archive, even a hostile one, into a directory. Creates and opens nothing outside it, and follows no link.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, linkat, mkdirat, openat, openat2, statat,
    symlinkat,
};
use rustix::io::Errno;
use tar::{Archive, EntryType};

use super::records::{Records, number};
use super::{BLOCK, MAX_RECORDS, MAX_STRETCHES};
use crate::limits::FEED_BYTES;
use crate::meta::Meta;

/// Resolve only beneath the directory, and follow no links.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Accessible to its owner alone until it gets its final mode.
const PRIVATE_DIRECTORY: Mode = Mode::RWXU;
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Unpacks an archive into an empty directory of this user's alone, to its end.
pub(crate) fn unpack(root: BorrowedFd<'_>, content: impl Read) -> io::Result<()> {
    let mut archive = Archive::new(content);
    let mut unpacking = Unpacking {
        current: root.try_clone_to_owned()?,
        root,
        root_meta: None,
        inside: Vec::new(),
        buffer: vec![0; FEED_BYTES],
    };
    let mut records = None;
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        if entry.header().entry_type() == EntryType::XHeader {
            if records.is_some() {
                return Err(io::Error::other("the archive has nested records"));
            }
            records = Some(Records::parse(&read_records(&mut entry)?)?);
            continue;
        }
        let entry = Unpacked::of(entry, records.take().unwrap_or_default())?;
        let name = shown(&entry.path);
        unpacking
            .one(entry)
            .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
    }
    if records.is_some() {
        return Err(io::Error::other(
            "the archive ends with records that belong to no file",
        ));
    }
    unpacking.end()?;
    // The rest after the last entry belongs to the archive.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map(drop)
}

/// A name of a peer's as a terminal may show it.
fn shown(path: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(path))
}

fn read_records(entry: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    entry.take(MAX_RECORDS + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > MAX_RECORDS {
        true => Err(io::Error::other(
            "the archive has records that are too long",
        )),
        false => Ok(bytes),
    }
}

/// An entry of the archive.
struct Unpacked<R> {
    path: Vec<u8>,
    kind: EntryType,
    meta: Meta,
    link: Vec<u8>,
    /// How long it is with its holes, if it has some.
    sparse: Option<u64>,
    size: u64,
    data: R,
}

impl<'a, R: Read> Unpacked<tar::Entry<'a, R>> {
    fn of(entry: tar::Entry<'a, R>, records: Records) -> io::Result<Unpacked<tar::Entry<'a, R>>> {
        let header = entry.header();
        let in_header = (i64::try_from(header.mtime()?).unwrap_or(i64::MAX), 0);
        let (seconds, nanoseconds) = records.mtime.unwrap_or(in_header);
        let path = records.path;
        let link = records.linkpath;
        Ok(Unpacked {
            path: path.unwrap_or_else(|| header.path_bytes().into_owned()),
            kind: header.entry_type(),
            meta: Meta {
                mode: header.mode()?,
                seconds,
                nanoseconds,
            },
            link: link
                .or_else(|| header.link_name_bytes().map(Into::into))
                .unwrap_or_default(),
            sparse: records.sparse,
            size: entry.size(),
            data: entry,
        })
    }
}

/// The parts of a path of the archive, none for the directory that is unpacked.
fn parts(path: &[u8]) -> io::Result<Vec<&[u8]>> {
    if path == b"./" || path == b"." {
        return Ok(Vec::new());
    }
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let parts: Vec<_> = path.split(|it| *it == b'/').collect();
    let is_name = |it: &&[u8]| !matches!(*it, b"" | b"." | b"..") && !it.contains(&0);
    match parts.iter().all(is_name) {
        true => Ok(parts),
        false => Err(io::Error::other("is not a path below the cast directory")),
    }
}

struct Unpacking<'a> {
    root: BorrowedFd<'a>,
    root_meta: Option<Meta>,
    /// The open directories of the walk, with the metadata to apply when the walk leaves each.
    inside: Vec<(Vec<u8>, Meta)>,
    /// The last of them.
    current: OwnedFd,
    buffer: Vec<u8>,
}

impl Unpacking<'_> {
    fn one(&mut self, mut entry: Unpacked<impl Read>) -> io::Result<()> {
        let path = std::mem::take(&mut entry.path);
        let parts = parts(&path)?;
        let Some((name, above)) = parts.split_last() else {
            let first = self.root_meta.is_none() && entry.kind == EntryType::Directory;
            self.root_meta = Some(entry.meta);
            return match first {
                true => Ok(()),
                false => Err(io::Error::other("appears twice, or is not a directory")),
            };
        };
        self.leave_all_but(above)?;
        match entry.kind {
            EntryType::Directory => self.enter(name, entry.meta),
            EntryType::Regular => self.file(name, &mut entry),
            EntryType::Symlink => {
                symlinkat(&entry.link[..], &self.current, *name)?;
                Ok(entry.meta.set_link(self.current.as_fd(), name)?)
            }
            EntryType::Link => self.link(name, &entry),
            _ => Err(io::Error::other(
                "is neither a file, a directory nor a link, which are all that a source casts",
            )),
        }
    }

    /// Leaves directories until the walk is in this one.
    fn leave_all_but(&mut self, above: &[&[u8]]) -> io::Result<()> {
        let is_in = |inside: &[(Vec<u8>, Meta)]| {
            inside.len() <= above.len()
                && inside.iter().zip(above).all(|((it, _), part)| it == part)
        };
        while !is_in(&self.inside) {
            self.leave()?;
        }
        match self.inside.len() == above.len() {
            true => Ok(()),
            false => Err(io::Error::other("comes before or after its directory")),
        }
    }

    fn enter(&mut self, name: &[u8], meta: Meta) -> io::Result<()> {
        mkdirat(&self.current, name, PRIVATE_DIRECTORY)?;
        self.current = openat(&self.current, name, DIRECTORY, Mode::empty())?;
        self.inside.push((name.to_vec(), meta));
        Ok(())
    }

    fn leave(&mut self) -> io::Result<()> {
        let Some((_, meta)) = self.inside.pop() else {
            return Ok(());
        };
        meta.set(&self.current)?;
        let above: Vec<&[u8]> = self.inside.iter().map(|it| &it.0[..]).collect();
        self.current = self.directory(&above)?;
        Ok(())
    }

    /// A directory that is there.
    fn directory(&self, parts: &[&[u8]]) -> io::Result<OwnedFd> {
        let path = match parts {
            [] => b".".to_vec(),
            parts => parts.join(&b'/'),
        };
        Ok(openat2(self.root, path, DIRECTORY, Mode::empty(), BENEATH)?)
    }

    fn end(&mut self) -> io::Result<()> {
        self.leave_all_but(&[])?;
        self.root_meta.map_or(Ok(()), |it| Ok(it.set(self.root)?))
    }

    /// Creates a file with this name; fails if the name exists.
    fn make(&self, name: &[u8]) -> io::Result<File> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.current, name, flags, PRIVATE_FILE)?.into())
    }

    fn file(&mut self, name: &[u8], entry: &mut Unpacked<impl Read>) -> io::Result<()> {
        let file = self.make(name)?;
        let (len, stretches) = match entry.sparse {
            None => (entry.size, vec![(0, entry.size)]),
            Some(len) => (len, read_map(&mut entry.data)?),
        };
        // Refuse a file that does not fit before writing it.
        file.set_len(len)?;
        let mut end = 0;
        for (begin, bytes) in stretches {
            let until = begin.checked_add(bytes).filter(|it| *it <= len);
            let until = until.filter(|_| begin >= end).ok_or_else(|| {
                io::Error::other("has data at invalid offsets, according to the archive")
            })?;
            self.copy(&mut entry.data, &file, begin, until)?;
            end = until;
        }
        Ok(entry.meta.set(&file)?)
    }

    fn copy(&mut self, from: &mut impl Read, file: &File, begin: u64, end: u64) -> io::Result<()> {
        let mut at = begin;
        while at < end {
            let most = usize::try_from(end - at).unwrap_or(usize::MAX);
            let most = most.min(self.buffer.len());
            match from.read(&mut self.buffer[..most])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => {
                    file.write_all_at(&self.buffer[..read], at)?;
                    at += read as u64;
                }
            }
        }
        Ok(())
    }

    /// Another name for a file that was unpacked before. A file system without such names has a copy.
    fn link(&mut self, name: &[u8], entry: &Unpacked<impl Read>) -> io::Result<()> {
        let parts = parts(&entry.link)?;
        let no_file =
            || io::Error::other("is another name of something that is not a file in the archive");
        let (first, above) = parts.split_last().ok_or_else(no_file)?;
        let directory = self.directory(above)?;
        let there = statat(&directory, *first, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(there.st_mode) != FileType::RegularFile {
            return Err(no_file());
        }
        match linkat(&directory, *first, &self.current, name, AtFlags::empty()) {
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK) => {}
            linked => return Ok(linked?),
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut first = File::from(openat(&directory, *first, flags, Mode::empty())?);
        let copy = self.make(name)?;
        let len = fstat(&first)?.st_size as u64;
        self.copy(&mut first, &copy, 0, len)?;
        Ok(entry.meta.set(&copy)?)
    }
}

/// Where the data of a file with holes lies: numbers, each on a line, in blocks of the archive. The first says how many stretches
/// there are, two follow for each.
fn read_map(from: &mut impl Read) -> io::Result<Vec<(u64, u64)>> {
    /// As many as a number has at most.
    const DIGITS: usize = 20;
    let malformed = || io::Error::other("has a malformed list of its data in the archive");
    let mut block = [0; BLOCK];
    let mut digits = Vec::new();
    let mut numbers = Vec::new();
    let mut lacking = 1;
    loop {
        from.read_exact(&mut block)?;
        for byte in block {
            if byte != b'\n' {
                digits.push(byte);
                if digits.len() > DIGITS {
                    return Err(malformed());
                }
                continue;
            }
            let number = number(&digits).ok_or_else(malformed)?;
            digits.clear();
            lacking -= 1;
            match numbers.is_empty() {
                true if number > MAX_STRETCHES as u64 => return Err(malformed()),
                true => lacking = 2 * number,
                false => {}
            }
            numbers.push(number);
            if lacking == 0 {
                let pairs = numbers[1..].chunks_exact(2);
                return Ok(pairs.map(|it| (it[0], it[1])).collect());
            }
        }
    }
}

#[cfg(test)]
#[path = "unpack_tests.rs"]
mod tests;
