//! Finds the kernel's tracepoints, and parses their record formats.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use perf_event::events::Tracepoint;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Where tracefs is mounted, if it is.
const MOUNTED: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The kernel's list of tracepoints.
pub(crate) struct Tracepoints {
    root: OwnedFd,
}

impl Tracepoints {
    /// The list where it is mounted, or else a mount of our own, which nothing else sees and which ends with it.
    pub(crate) fn open() -> io::Result<Tracepoints> {
        let mounted = MOUNTED.into_iter().find_map(|path| {
            let root = Path::new(path);
            root.join("events").is_dir().then(|| directory(CWD, root))
        });
        let root = match mounted {
            Some(root) => root?,
            None => mount()?,
        };
        Ok(Tracepoints { root })
    }

    /// The tracepoint with that name, such as `skb/kfree_skb`.
    pub(crate) fn find(&self, name: &str) -> io::Result<Format> {
        let id = self.read(&format!("events/{name}/id"))?;
        let id = id.trim().parse().map_err(io::Error::other)?;
        Ok(Format {
            id,
            text: self.read(&format!("events/{name}/format"))?,
        })
    }

    fn read(&self, path: &str) -> io::Result<String> {
        let file = openat(
            &self.root,
            path,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let mut text = String::new();
        File::from(file).read_to_string(&mut text)?;
        Ok(text)
    }
}

fn directory(below: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(below, path, flags, Mode::empty())?)
}

fn mount() -> io::Result<OwnedFd> {
    let filesystem = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(filesystem.as_fd())?;
    Ok(fsmount(
        filesystem.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_RDONLY,
    )?)
}

/// What a tracepoint's record holds.
#[derive(Clone, Debug)]
pub(crate) struct Format {
    id: u64,
    /// The kernel's description.
    text: String,
}

impl Format {
    /// For opening it.
    pub(crate) fn event(&self) -> Tracepoint {
        Tracepoint::with_id(self.id)
    }

    /// Where the number `name` is in a record.
    pub(crate) fn field(&self, name: &str) -> Option<Field> {
        let lines = self
            .text
            .lines()
            .filter_map(|it| it.trim().strip_prefix("field:"));
        lines.into_iter().find_map(|line| {
            let mut parts = line.split(';').map(str::trim);
            let declared = parts.next()?.rsplit([' ', '*']).next()?;
            let mut number = |key| parts.next()?.strip_prefix(key)?.parse().ok();
            let (offset, len) = (number("offset:")?, number("size:")?);
            (declared == name && matches!(len, 1 | 2 | 4 | 8)).then_some(Field { offset, len })
        })
    }

    /// The names that the kernel prints for numbers, if it does for one of the fields.
    pub(crate) fn names(&self) -> HashMap<u64, String> {
        let pairs = self.text.split('{').skip(1).filter_map(|it| {
            let (number, name) = it.split_once('}')?.0.split_once(',')?;
            let name = name.trim().strip_prefix('"')?.strip_suffix('"')?;
            Some((number.trim().parse().ok()?, name.to_owned()))
        });
        pairs.collect()
    }
}

/// A number in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    offset: usize,
    len: usize,
}

impl Field {
    pub(crate) fn of(self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(self.offset..self.offset + self.len)?;
        Some(match *bytes {
            [a] => a.into(),
            [a, b] => u16::from_ne_bytes([a, b]).into(),
            [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).into(),
            _ => u64::from_ne_bytes(bytes.try_into().ok()?),
        })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const TEXT: &str = "name: kfree_skb\nID: 7\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:void *location;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:char name[16];\toffset:24;\tsize:16;\tsigned:0;\n\n\
        print fmt: \"%s\", __print_symbolic(REC->reason, { 2, \"NOT_SPECIFIED\" }, { 6, \"SOCKET_RCVBUFF\" })\n";

    fn format() -> Format {
        Format {
            id: 7,
            text: TEXT.into(),
        }
    }

    #[test]
    fn field__by_name() {
        let format = format();
        let location = format.field("location").unwrap();
        assert_eq!(location, Field { offset: 16, len: 8 });
        assert_eq!(
            format.field("common_type"),
            Some(Field { offset: 0, len: 2 })
        );
        assert_eq!(format.field("nothing"), None);
        assert_eq!(format.field("name[16]"), None, "no number");
        let mut record = [0; 24];
        record[16..].copy_from_slice(&0x1234_u64.to_ne_bytes());
        assert_eq!(location.of(&record), Some(0x1234));
        assert_eq!(location.of(&record[..20]), None, "cut off");
    }

    #[test]
    fn names__that_the_kernel_prints() {
        let expected = [(2, "NOT_SPECIFIED"), (6, "SOCKET_RCVBUFF")];
        let expected = expected.map(|(number, name)| (number, name.to_owned()));
        assert_eq!(format().names(), expected.into());
    }

    #[test]
    fn find__in_a_list_that_is_mounted_or_not() {
        let Ok(tracepoints) = Tracepoints::open() else {
            eprintln!("skipped: this process may not trace");
            return;
        };
        let skb = tracepoints.find("skb/kfree_skb");
        let Ok(skb) = skb else {
            eprintln!("skipped: {skb:?}");
            return;
        };
        assert!(skb.field("location").is_some());
        assert!(tracepoints.find("no/such").is_err());
        let own = Tracepoints {
            root: mount().unwrap(),
        };
        assert_eq!(own.find("skb/kfree_skb").unwrap().id, skb.id);
    }
}
