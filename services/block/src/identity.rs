//! Identifies a disk, so that an initiator that reconnects recognises it.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes of an identity.
const BYTES: usize = 16;

/// Separates these digests from all others.
const CONTEXT: &str = "zerolane 2026-11 identity of a disk";

/// What a machine is known by, where systemd or D-Bus made it.
const MACHINE: &str = "/etc/machine-id";

/// The name of a disk, the same across restarts, moves of its target and different paths to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity([u8; BYTES]);

impl Identity {
    /// The identity that follows from `parts`, in this order: the first 16 bytes of a BLAKE3 digest of them. Each
    /// part has its length before it, so that no two lists are alike.
    pub fn of(parts: &[&[u8]]) -> Identity {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        for part in parts {
            hasher.update(&(part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        let mut bytes = [0; BYTES];
        hasher.finalize_xof().fill(&mut bytes);
        Identity(bytes)
    }

    /// The identity of the file or device at `path`, if no name is given: it follows from this machine's identifier
    /// and the path without symbolic links. So it is the same after a restart, and whatever is in the image; a copy
    /// has another, and so has an image that was moved.
    ///
    /// # Errors
    /// `path` does not exist.
    pub fn of_image(path: &Path) -> io::Result<Identity> {
        let path = path.canonicalize()?;
        // Where there is none, paths have to be enough.
        let machine = fs::read(MACHINE).unwrap_or_default();
        let parts = [b"path", machine.trim_ascii(), path.as_os_str().as_bytes()];
        Ok(Identity::of(&parts))
    }

    /// The identity that follows from a given name alone, so it moves with the name.
    pub fn named(name: &str) -> Identity {
        Identity::of(&[b"name", name.as_bytes()])
    }

    /// The identity with that serial number, with which a door serves a disk of another host. `None` unless it is 32
    /// hexadecimal digits.
    pub fn of_serial(serial: &str) -> Option<Identity> {
        let digits = serial.as_bytes();
        let is_serial = digits.len() == 2 * BYTES && digits.iter().all(u8::is_ascii_hexdigit);
        let number = u128::from_str_radix(serial, 16)
            .ok()
            .filter(|_| is_serial)?;
        Some(Identity(number.to_be_bytes()))
    }

    /// NAA 3h, locally assigned (SPC-4, 7.8.6.6.4): no registered company made this disk. 60 bits of the identity.
    pub fn naa(&self) -> [u8; 8] {
        let mut naa = [0; 8];
        naa.copy_from_slice(&self.0[..8]);
        naa[0] = 0x30 | (naa[0] & 0xf);
        naa
    }
}

/// The serial number: 32 hexadecimal digits.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
