//! A target that is a file, a tree or a device, opened: what an earlier try left of it is looked at.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zerolane_cast::{Bitmap, Hash, Header, Manifest, Stored};

use super::paths::Paths;
use super::reading::unpack;
use super::{Place, Target};
use crate::error::Error;
use crate::invitation::Form;
use crate::store::Store;

/// Opens the target at this path.
pub(super) fn open_at(last: PathBuf, force: bool, form: Form, bytes: u64) -> Result<Target, Error> {
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
        name: shown,
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
        name: shown,
        store: Store::File(file),
        place: Place::Device,
        stored: None,
        feed: Arc::default(),
        reader: None,
    })
}

/// The chunks of a partial file that have their digests.
pub(super) fn stored(file: &File, list: &Path, bytes: u64) -> Option<Stored> {
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

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

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
