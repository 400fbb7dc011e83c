//! Checks what an earlier attempt left of a target, in a thread beside the connections.
//!
//! Reading a large file takes longer than a peer waits for a silent one.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use zerolane::Waker;
use zerolane_cast::limits::MAX_CHUNKS;
use zerolane_cast::{Bitmap, Hash, Header, Manifest, Stored};

use super::beside::open_own;
use crate::error::Error;

/// A thread that checks. When its result is no longer wanted, it ends after the current chunk. Nothing waits for it: a
/// device may never answer.
#[derive(Debug)]
pub(super) struct Looking {
    file: Arc<File>,
    found: Receiver<Option<Stored>>,
    progress: Arc<Progress>,
    over: bool,
}

#[derive(Debug, Default)]
pub(super) struct Progress {
    bytes: AtomicU64,
    unwanted: AtomicBool,
}

impl Looking {
    /// Looks which chunks of a partial file have the digests of the list beside it; uses `waker` at the end.
    pub(super) fn begin(
        file: Arc<File>,
        list: PathBuf,
        bytes: u64,
        waker: Waker,
    ) -> Result<Looking, Error> {
        let (told, found) = channel();
        let progress = Arc::new(Progress::default());
        let (shown, partial) = (Arc::clone(&progress), Arc::clone(&file));
        let work = move || {
            // The receiver of the result may be gone.
            let _ = told.send(stored(&partial, &list, bytes, &shown));
            waker.wake();
        };
        let thread = thread::Builder::new().name("cast-look".into());
        thread.spawn(work).map_err(Error::io("starting a thread"))?;
        Ok(Looking {
            file,
            found,
            progress,
            over: false,
        })
    }

    /// The result, once the check is complete.
    pub(super) fn end(&mut self) -> Option<Option<Stored>> {
        let found = match self.found.try_recv() {
            Ok(found) => found,
            Err(TryRecvError::Empty) => return None,
            // It panicked: all is asked for again.
            Err(TryRecvError::Disconnected) => None,
        };
        self.over = true;
        Some(found)
    }

    /// Bytes that were looked at.
    pub(super) fn bytes(&self) -> u64 {
        self.progress.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        if !self.over {
            self.progress.unwanted.store(true, Ordering::Relaxed);
            // The thread keeps the file open for a while, and another attempt must not find it locked. If unlocking
            // fails, the lock ends with the thread.
            let _ = self.file.unlock();
        }
    }
}

/// Bytes of the longest list of digests.
const LIST_BYTES: u64 = MAX_CHUNKS as u64 * size_of::<Hash>() as u64 + 1024;

/// The list, if it is this user's.
fn read_list(path: &Path) -> Option<Vec<u8>> {
    let mut list = Vec::new();
    let file = open_own(path, false).ok()??;
    file.take(LIST_BYTES).read_to_end(&mut list).ok()?;
    Some(list)
}

/// The chunks of a partial file that have their digests.
fn stored(file: &File, list: &Path, bytes: u64, progress: &Progress) -> Option<Stored> {
    #[cfg(test)]
    crate::tests::hold(list);
    let list = read_list(list)?;
    let (header, hashes): (Header, Vec<Hash>) = postcard::from_bytes(&list).ok()?;
    let manifest = Manifest::covered(header, hashes)
        .ok()
        .filter(|_| header.bytes == bytes)?;
    let mut has = Bitmap::empty(header.chunks());
    let mut buffer = vec![0; header.chunk_bytes as usize];
    for chunk in 0..header.chunks() {
        if progress.unwanted.load(Ordering::Relaxed) {
            return None;
        }
        let content = &mut buffer[..header.bytes_of(chunk)];
        let offset = u64::from(chunk) * u64::from(header.chunk_bytes);
        if file.read_exact_at(content, offset).is_ok() && manifest.check(chunk, content).is_ok() {
            has.insert(chunk);
        }
        let so_far = offset + content.len() as u64;
        progress.bytes.store(so_far, Ordering::Relaxed);
    }
    (!has.is_empty()).then_some(Stored {
        root: header.root,
        has,
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use std::fs;

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
        let progress = Progress::default();
        let found = stored(&file, &list, 1000, &progress).unwrap();
        let has: Vec<u32> = (0..4).filter(|it| found.has.contains(*it)).collect();
        assert_eq!((found.root, has), (manifest.header().root, vec![1]));
        assert_eq!(progress.bytes.load(Ordering::Relaxed), 1000);
        assert_eq!(
            stored(&file, &list, 999, &progress),
            None,
            "another content"
        );
    }
}
