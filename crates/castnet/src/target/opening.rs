//! A target that is a file, a tree or a device, opened.

use std::fs::{OpenOptions, TryLockError};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zerolane::Waker;

use super::looking::Looking;
use super::paths::Paths;
use super::reading::unpack;
use super::{Place, Target};
use crate::error::Error;
use crate::invitation::Form;
use crate::store::Store;

/// Opens the target at this path.
pub(super) fn open_at(
    last: PathBuf,
    force: bool,
    form: Form,
    bytes: u64,
    waker: Waker,
) -> Result<Target, Error> {
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
    file.set_len(bytes).map_err(Error::io(&partial))?;
    let place = match form {
        Form::Bytes => Place::File(paths.clone()),
        Form::Tree => Place::Tree(paths.clone()),
    };
    let looking = Looking::begin(Arc::clone(&file), paths.list.clone(), bytes, waker)?;
    let mut target = Target {
        name: shown,
        store: Store::File(Arc::clone(&file)),
        place,
        looking: Some(looking),
        stored: None,
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
        looking: None,
        stored: None,
        feed: Arc::default(),
        reader: None,
    })
}
