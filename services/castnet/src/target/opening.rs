//! Opens a target that is a file, a tree or a device.

use std::fs::OpenOptions;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zerolane::Waker;

use super::beside::{PRIVATE, USUAL, open_partial};
use super::looking::Looking;
use super::paths::Paths;
use super::reading::unpack;
use super::{Place, Target};
use crate::error::Error;
use crate::invitation::{Form, Offer};
use crate::store::Store;

/// Opens the target at this path.
pub(super) fn open_at(
    last: PathBuf,
    force: bool,
    offer: &Offer,
    waker: Waker,
) -> Result<Target, Error> {
    let (form, bytes, meta) = (offer.form, offer.bytes, offer.meta);
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
            "{shown}: already exists, as another kind of file"
        )));
    }
    let paths = Paths::of(last, force);
    let partial = paths.partial.display().to_string();
    // The content of a tree has the modes of its files.
    let is_private = form == Form::Tree || meta.is_some();
    let mode = if is_private { PRIVATE } else { USUAL };
    let file = open_partial(&paths.partial, mode, &paths.last)?;
    let file = Arc::new(file);
    // What an earlier try left is not cut before it is known that this is another content: who offers may leave at once.
    let there = file.metadata().map_err(Error::io(&partial))?;
    if there.len() < bytes {
        file.set_len(bytes).map_err(Error::io(&partial))?;
    }
    let place = match form {
        Form::Bytes => Place::File(paths.clone()),
        Form::Tree => Place::Tree(paths.clone()),
    };
    let looking = Looking::begin(Arc::clone(&file), paths.list.clone(), bytes, waker)?;
    let mut target = Target {
        name: shown,
        store: Store::File(Arc::clone(&file)),
        place,
        meta,
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
            "{shown}: has {room} bytes, but the content has {bytes}"
        )));
    }
    let file = Arc::new(file);
    Ok(Target {
        name: shown,
        store: Store::Device(file),
        place: Place::Device,
        meta: None,
        looking: None,
        stored: None,
        feed: Arc::default(),
        reader: None,
    })
}
