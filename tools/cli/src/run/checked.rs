//! Refuses programs into which the linker loads no library, in words: the linker itself says nothing.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};

use crate::exit::Exit;
use crate::program;

/// Scripts that name scripts as their interpreters: as deep as the kernel looks.
const MAX_SCRIPTS: usize = 5;
/// The longest first line of a script that the kernel reads.
const MAX_LINE: u64 = 256;
/// Program headers that are read; programs have a dozen.
const MAX_HEADERS: usize = 256;

/// Checks that libraries can be loaded into the program `name`, or that its calls can be trapped.
///
/// # Errors
/// There is no such program, it runs with other rights than this user's, it is made for another processor, or it loads
/// no libraries and is not trapped.
pub(super) fn check(name: &OsStr, trap: bool) -> Result<()> {
    let missing = || {
        let words = format!("{}: no such program", name.display());
        anyhow!(words).context(Exit::CommandNotFound)
    };
    let mut path = program::find(name).ok_or_else(missing)?;
    for _ in 0..MAX_SCRIPTS {
        let refused = |why: &str| {
            let words = match trap {
                true => format!(
                    "Zerolane cannot trap the calls of {}: {why}",
                    path.display()
                ),
                false => format!("Zerolane cannot be loaded into {}: {why}", path.display()),
            };
            Err(anyhow!(words).context(Exit::NotExecutable))
        };
        // The kernel reports what cannot be read when it starts the program.
        let Ok(metadata) = fs::metadata(&path) else {
            return Ok(());
        };
        if metadata.permissions().mode() & 0o6000 != 0 {
            return refused(match trap {
                true => {
                    "it runs as another user or group (set-user-ID), which a trapped program must not"
                }
                false => {
                    "it runs as another user or group (set-user-ID), so the system keeps libraries out"
                }
            });
        }
        let mut capabilities = [0; 64];
        if rustix::fs::getxattr(&path, "security.capability", &mut capabilities[..]).is_ok() {
            return refused(match trap {
                true => "it has capabilities, which a trapped program must not get",
                false => "it has capabilities, so the system keeps libraries out",
            });
        }
        match kind(&path) {
            Kind::Script(interpreter) => path = interpreter,
            Kind::Static if !trap => {
                return refused("it is linked statically, as Go's are: use --trap");
            }
            Kind::Foreign => return refused("it is made for another kind of processor"),
            Kind::Dynamic | Kind::Static | Kind::Unknown => return Ok(()),
        }
    }
    Ok(())
}

/// What a file is, as far as its first bytes tell.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Script(PathBuf),
    Static,
    Dynamic,
    Foreign,
    Unknown,
}

fn kind(path: &Path) -> Kind {
    let read = || -> std::io::Result<Kind> {
        let mut file = File::open(path)?;
        let mut head = [0; 64];
        let len = file.read(&mut head)?;
        if head.starts_with(b"#!") {
            let mut line = Vec::new();
            file.seek(SeekFrom::Start(2))?;
            BufReader::new(file.take(MAX_LINE)).read_until(b'\n', &mut line)?;
            let mut words = line.split(|it| it.is_ascii_whitespace());
            let interpreter = words.find(|it| !it.is_empty());
            return Ok(interpreter.map_or(Kind::Unknown, |it| {
                Kind::Script(PathBuf::from(OsStr::from_bytes(it)))
            }));
        }
        if len < head.len() || !head.starts_with(b"\x7fELF") {
            return Ok(Kind::Unknown);
        }
        let own = fs::read("/proc/self/exe").map(|it| it.get(4..20).map(<[u8]>::to_vec));
        // Class, byte order, and the machine behind the type.
        let differs = own
            .ok()
            .flatten()
            .is_some_and(|own| own[..2] != head[4..6] || own[14..16] != head[18..20]);
        if differs {
            return Ok(Kind::Foreign);
        }
        let half = |at: usize| usize::from(u16::from_ne_bytes([head[at], head[at + 1]]));
        let mut offset = [0; 8];
        offset.copy_from_slice(&head[32..40]);
        let (size, count) = (half(54), half(56).min(MAX_HEADERS));
        file.seek(SeekFrom::Start(u64::from_ne_bytes(offset)))?;
        let mut headers = Vec::new();
        file.take((size * count) as u64).read_to_end(&mut headers)?;
        const INTERPRETER: [u8; 4] = 3_u32.to_ne_bytes();
        let mut kinds = headers.chunks(size.max(4));
        Ok(match kinds.any(|it| it.starts_with(&INTERPRETER)) {
            true => Kind::Dynamic,
            false => Kind::Static,
        })
    };
    read().unwrap_or(Kind::Unknown)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn kind__of_programs_and_scripts() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        assert_eq!(kind(Path::new("/proc/self/exe")), Kind::Dynamic);
        let script = file("script", b"#! /bin/sh -e\n");
        assert_eq!(kind(&script), Kind::Script("/bin/sh".into()));
        let mut own = fs::read("/proc/self/exe").unwrap();
        own.truncate(1 << 16);
        // No program headers.
        own[56] = 0;
        own[57] = 0;
        assert_eq!(kind(&file("static", &own)), Kind::Static);
        own[18] ^= 1;
        assert_eq!(kind(&file("foreign", &own)), Kind::Foreign);
        for bytes in [&b""[..], b"#!", b"\x7fELF", b"hello"] {
            assert_eq!(kind(&file("other", bytes)), Kind::Unknown, "{bytes:?}");
        }
    }
}
