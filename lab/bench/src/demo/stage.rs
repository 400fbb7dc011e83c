//! Makes a directory with a real file for the demo, in memory if there is room.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use blake3::{Hash, Hasher};
use bytesize::ByteSize;
use nix::sys::statvfs::statvfs;
use nix::unistd::geteuid;
use tempfile::TempDir;

use crate::content::pattern::{Pattern, mix};
use zerolane_cli::console;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

/// Name of the file and of its copy.
pub(crate) const NAME: &str = "file";

/// Files that are there at once: the source and one copy.
const FILES: u64 = 2;

/// Space left free for other users.
const SPARE_BYTES: u64 = 512 << 20;

/// A smaller file says nothing.
const SMALLEST_BYTES: u64 = 1 << 20;

/// Written, hashed and read back in pieces of this many bytes.
const PIECE_BYTES: usize = 1 << 20;

/// The file, gone with its directory when dropped.
#[derive(Debug)]
pub(crate) struct Stage {
    directory: TempDir,
    /// As long as it is held, the directory is in use.
    _lock: File,
    /// Bytes of the file.
    pub(crate) bytes: u64,
    digest: Hash,
}

impl Stage {
    /// Makes the file, smaller than asked if there is not the room, and says so.
    pub(crate) fn set_up(asked: u64, interrupt: &Interrupt) -> Result<Stage> {
        for name in sweep(&Place::directories()) {
            console::note(format_args!(
                "removed {}, left behind by a killed demo",
                name.display()
            ));
        }
        let place = Place::with_most_room()?;
        let bytes = fitting(asked, place.room)?;
        if bytes < asked {
            console::note(format_args!(
                "Only {} free in {}: the file has {} instead of {}.",
                ByteSize(place.room),
                place.path.display(),
                ByteSize(bytes),
                ByteSize(asked)
            ));
        }
        let (directory, lock) = make_locked(&place.path)?;
        let mut stage = Stage {
            directory,
            _lock: lock,
            bytes,
            digest: Hash::from_bytes([0; 32]),
        };
        fs::create_dir(stage.source())?;
        fs::create_dir(stage.destination())?;
        stage.digest = write_file(&stage.source().join(NAME), bytes, interrupt)?;
        stage.touch_room_for_copy(interrupt)?;
        console::say(format_args!(
            "The file: {} of random bytes in {}, BLAKE3 {}...",
            ByteSize(bytes),
            place.path.display(),
            &stage.digest.to_hex()[..16]
        ))?;
        Ok(stage)
    }

    /// Where the file is.
    pub(crate) fn source(&self) -> PathBuf {
        self.directory.path().join("from")
    }

    /// Where its copy goes.
    pub(crate) fn destination(&self) -> PathBuf {
        self.directory.path().join("to")
    }

    /// Fills the room of a copy once and frees it. A virtual machine gets its memory when it is first touched, at up to
    /// ten times the cost: neither contender must pay for that.
    fn touch_room_for_copy(&self, interrupt: &Interrupt) -> Result<()> {
        let path = self.destination().join("room");
        let mut file = File::create_new(&path)?;
        let piece = vec![1; PIECE_BYTES];
        for _ in 0..self.bytes.div_ceil(PIECE_BYTES as u64) {
            interrupt.check()?;
            file.write_all(&piece)?;
        }
        Ok(fs::remove_file(path)?)
    }

    /// Compares the copy's digest with the file's, and removes the copy.
    pub(crate) fn verify_copy(&self, interrupt: &Interrupt) -> Result<()> {
        let copy = self.destination().join(NAME);
        if digest(&copy, interrupt)? != self.digest {
            return Err(Exit::Corrupt).context("the copy's digest differs from the file's");
        }
        fs::remove_file(copy)?;
        Ok(())
    }
}

/// How the directories of demos begin.
const PREFIX: &str = "zerolane-demo-";

/// Makes a directory that no other demo takes for one left behind.
fn make_locked(place: &Path) -> Result<(TempDir, File)> {
    loop {
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(place)?;
        // Between these two, another one may remove it.
        let Ok(lock) = File::open(directory.path()) else {
            continue;
        };
        if lock.try_lock().is_ok() && directory.path().exists() {
            return Ok((directory, lock));
        }
    }
}

/// Removes unlocked directories of this user's demos, which killed demos left.
fn sweep(places: &[PathBuf]) -> Vec<PathBuf> {
    let entries = places.iter().filter_map(|place| fs::read_dir(place).ok());
    let paths = entries.flatten().flatten().map(|entry| entry.path());
    let left_behind = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(PREFIX.as_bytes())
            && fs::symlink_metadata(path)
                .is_ok_and(|it| it.is_dir() && it.uid() == geteuid().as_raw())
            && File::open(path)
                .is_ok_and(|lock| lock.try_lock().is_ok() && fs::remove_dir_all(path).is_ok())
    };
    paths.filter(left_behind).collect()
}

/// A directory and how many bytes fit into it.
struct Place {
    path: PathBuf,
    room: u64,
}

impl Place {
    /// Where there may be one.
    fn directories() -> [PathBuf; 2] {
        [PathBuf::from("/dev/shm"), std::env::temp_dir()]
    }

    /// tmpfs if it can be used at all: then nothing is measured but the copying.
    fn with_most_room() -> Result<Place> {
        let memory = available_memory().unwrap_or(0).saturating_sub(SPARE_BYTES);
        let [tmpfs, path] = Place::directories();
        if let Ok(free) = free_bytes(&tmpfs) {
            let room = free.min(memory);
            if room >= FILES * SMALLEST_BYTES {
                return Ok(Place { path: tmpfs, room });
            }
        }
        let room = free_bytes(&path)?.saturating_sub(SPARE_BYTES);
        Ok(Place { path, room })
    }
}

/// The largest size up to `asked` of which `FILES` fit into `room`, whole MiB.
fn fitting(asked: u64, room: u64) -> Result<u64> {
    let each = room / FILES;
    let bytes = if asked <= each {
        asked
    } else {
        each >> 20 << 20
    };
    if bytes < SMALLEST_BYTES {
        bail!(
            "the demo needs room for {FILES} files of at least {}, and {} are free: free some memory or disk space, \
             or point TMPDIR elsewhere",
            ByteSize(SMALLEST_BYTES),
            ByteSize(room)
        );
    }
    Ok(bytes)
}

fn free_bytes(directory: &Path) -> Result<u64> {
    let stat = statvfs(directory).with_context(|| format!("examining {}", directory.display()))?;
    Ok(stat.blocks_available() * stat.fragment_size())
}

/// MemAvailable of /proc/meminfo.
fn available_memory() -> Option<u64> {
    mem_available(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Writes `bytes` bytes of which no piece is like another; their digest.
fn write_file(path: &Path, bytes: u64, interrupt: &Interrupt) -> Result<Hash> {
    let mut file = File::create_new(path)?;
    let mut hasher = Hasher::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut left = bytes;
    while left > 0 {
        interrupt.check()?;
        Pattern::new(mix(bytes, left), PIECE_BYTES).fill(&mut piece);
        let part =
            &piece[..usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES))];
        file.write_all(part).context("writing the file")?;
        hasher.update(part);
        left -= part.len() as u64;
    }
    Ok(hasher.finalize())
}

fn digest(path: &Path, interrupt: &Interrupt) -> Result<Hash> {
    let mut file = File::open(path)?;
    let mut hasher = Hasher::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        interrupt.check()?;
        match file.read(&mut piece)? {
            0 => return Ok(hasher.finalize()),
            got => hasher.update(&piece[..got]),
        };
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn fitting__scales_down_to_the_room() {
        let gib = 1 << 30;
        assert_eq!(fitting(2 * gib, 4 * gib).unwrap(), 2 * gib);
        assert_eq!(fitting(2 * gib, 4 * gib - 1).unwrap(), 2 * gib - (1 << 20));
        assert_eq!(fitting(2 * gib, gib).unwrap(), gib / 2);
        assert!(fitting(2 * gib, SMALLEST_BYTES).is_err());
        assert!(fitting(1000, 4 * gib).is_err());
    }

    #[test]
    fn mem_available__reads_the_kernels_text() {
        let text = "MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable:   24000 kB\n";
        assert_eq!(mem_available(text), Some(24_576_000));
        assert_eq!(mem_available("MemTotal: 9 kB\n"), None);
    }

    fn stage(directory: TempDir, bytes: u64) -> Stage {
        let lock = File::open(directory.path()).unwrap();
        let mut stage = Stage {
            directory,
            _lock: lock,
            bytes,
            digest: Hash::from_bytes([0; 32]),
        };
        fs::create_dir(stage.source()).unwrap();
        fs::create_dir(stage.destination()).unwrap();
        let path = stage.source().join(NAME);
        stage.digest = write_file(&path, bytes, &Interrupt::default()).unwrap();
        stage
    }

    #[test]
    fn verify_copy__takes_the_same_bytes_and_no_others() {
        let stage = stage(TempDir::new().unwrap(), 3_000_001);
        let (from, to) = (stage.source().join(NAME), stage.destination().join(NAME));
        let interrupt = Interrupt::default();

        fs::copy(&from, &to).unwrap();
        stage.verify_copy(&interrupt).unwrap();
        assert!(!to.exists(), "the copy is removed");

        let mut wrong = fs::read(&from).unwrap();
        wrong[2_000_000] ^= 1;
        fs::write(&to, wrong).unwrap();
        let error = stage.verify_copy(&interrupt).unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Corrupt);
    }

    #[test]
    fn sweep__what_nobody_holds_and_nothing_else() {
        let place = TempDir::new().unwrap();
        let make = |name: &str| {
            let path = place.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("file"), b"x").unwrap();
            path
        };
        let (left, other) = (make("zerolane-demo-killed"), make("of-another"));
        fs::write(place.path().join("zerolane-demo-file"), b"x").unwrap();
        std::os::unix::fs::symlink(&other, place.path().join("zerolane-demo-link")).unwrap();
        let (held, lock) = make_locked(place.path()).unwrap();
        assert_eq!(sweep(&[place.path().into()]), std::slice::from_ref(&left));
        assert!(!left.exists() && other.join("file").exists() && held.path().exists());
        assert!(place.path().join("zerolane-demo-file").exists());
        // Its holder ends, by whatever.
        drop(lock);
        assert_eq!(sweep(&[place.path().into()]), [held.path()]);
    }

    #[test]
    fn write_file__repeats_no_block() {
        let stage = stage(TempDir::new().unwrap(), 4 << 20);
        let bytes = fs::read(stage.source().join(NAME)).unwrap();
        assert_eq!(bytes.len(), 4 << 20);
        let mut blocks: Vec<&[u8]> = bytes.chunks(512).collect();
        let all = blocks.len();
        blocks.sort_unstable();
        blocks.dedup();
        assert_eq!(blocks.len(), all);
    }
}
