//! Tests `-X` and `-A`: extended attributes and access control lists.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr};

use super::*;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// Sets an attribute. Returns whether that worked.
fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    let file = File::open(path).unwrap();
    fsetxattr(file, name, value, XattrFlags::empty()).is_ok()
}

fn remove(path: &Path, name: &str) {
    fremovexattr(File::open(path).unwrap(), name).unwrap();
}

/// The attributes of a file, except those that the system sets on all files.
fn of(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let (file, mut list) = (File::open(path).unwrap(), vec![0; 65536]);
    let len = flistxattr(&file, &mut list[..]).unwrap();
    let names = list[..len].split(|&byte| byte == 0);
    let names = names.map(|it| String::from_utf8(it.to_vec()).unwrap());
    let names = names.filter(|it| !it.is_empty() && it != "security.selinux");
    let value = |name: String| {
        let mut value = vec![0; 65536];
        let len = fgetxattr(&file, &name[..], &mut value[..]).unwrap();
        value.truncate(len);
        (name, value)
    };
    names.map(value).collect()
}

/// An access control list that grants one more user these permissions.
fn list(user: u32, may: u16) -> Vec<u8> {
    let none = u32::MAX;
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, may, id) in [
        (1_u16, 7_u16, none),
        (2, may, user),
        (4, 4, none),
        (16, 7, none),
        (32, 0, none),
    ] {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(may.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

const NAMES: [&str; 7] = ["", "d", "d/small", "large", "none", "read-only", "new"];

fn tree(base: &Path) -> Vec<(BTreeMap<String, Vec<u8>>, u32)> {
    let look = |name: &str| {
        let path = base.join(name);
        (of(&path), path.metadata().unwrap().mode())
    };
    NAMES[1..].iter().map(|name| look(name)).collect()
}

/// Plants files with attributes. Returns whether file systems here support them.
fn plant(base: &Path) -> bool {
    let at = |name: &str| base.join(name);
    fs::create_dir_all(at("d")).unwrap();
    for name in ["d/small", "none", "read-only", "new"] {
        fs::write(at(name), name).unwrap();
    }
    fs::write(at("large"), content(1, 2 * MIB + 3)).unwrap();
    symlink("large", at("link")).unwrap();
    let can = set(&at("d"), "user.d", b"directory")
        && set(&at("d/small"), "user.name", b"value\0\xff")
        && set(&at("large"), "user.long", &content(2, 3000))
        && set(&at("large"), "user.empty", b"")
        && set(&at("read-only"), "user.r", b"r")
        && set(&at("d"), DEFAULT, &list(4_000_001, 5))
        && set(&at("d"), ACCESS, &list(4_000_002, 7))
        && set(&at("d/small"), ACCESS, &list(4_000_003, 6));
    let mode = fs::Permissions::from_mode(0o444);
    fs::set_permissions(at("read-only"), mode).unwrap();
    // Attributes of this program are not copied.
    let can = can && set(&at("none"), "user.zerolane.temporary", b"no");
    if !can {
        println!("skipped: no attributes here");
    }
    can
}

#[test]
fn attributes__as_rsync_has_them() {
    let lab = Lab::new(&[]);
    if !plant(&lab.local("tree")) || !plant(&lab.share("tree")) {
        return;
    }
    for (from, to, target) in ways(&lab) {
        for make in [cp, sync] {
            for options in [&[][..], &["-X"], &["-A"], &["-X", "-A"]] {
                succeed(make(options, from.clone(), to.clone()));
                let (x, a) = (options.contains(&"-X"), options.contains(&"-A"));
                assert_eq!(of(&target.join("d")).contains_key("user.d"), x);
                assert_eq!(of(&target.join("d")).contains_key(DEFAULT), a);
                assert_eq!(of(&target.join("none")).len(), 0);
                let with_rsync = lab.local("rsync");
                remove(&lab.local("tree/none"), "user.zerolane.temporary");
                let done = rsync(
                    &[&["-a"], options].concat(),
                    &lab.local("tree"),
                    &with_rsync,
                );
                assert!(set(
                    &lab.local("tree/none"),
                    "user.zerolane.temporary",
                    b"no"
                ));
                if done.is_some() {
                    assert_eq!(tree(&target), tree(&with_rsync), "{options:?}");
                    fs::remove_dir_all(with_rsync).unwrap();
                }
                fs::remove_dir_all(&target).unwrap();
            }
        }
    }
}

#[test]
fn sync__attributes_that_differ_and_nothing_the_second_time() {
    let lab = Lab::new(&[]);
    if !plant(&lab.local("tree")) || !plant(&lab.share("tree")) {
        return;
    }
    for (from, to, target) in ways(&lab) {
        let source = match from.contains(':') {
            true => lab.share("tree"),
            false => lab.local("tree"),
        };
        let differences = || {
            let out = succeed(sync(&["-XA", "-v"], from.clone(), to.clone()));
            out.lines().count()
        };
        assert!(differences() > 0);
        assert_eq!(differences(), 0);
        let inode = |name: &str| target.join(name).metadata().unwrap().ino();
        let before = ["large", "none", "read-only", "d/small"].map(inode);
        // At the source.
        assert!(set(&source.join("large"), "user.more", b"more"));
        remove(&source.join("large"), "user.empty");
        assert!(set(&source.join("d"), "user.d", b"changed"));
        remove(&source.join("d/small"), ACCESS);
        // At the target.
        assert!(set(&target.join("none"), "user.too-much", b"x"));
        assert!(set(&target.join("none"), ACCESS, &list(4_000_009, 7)));
        assert_eq!(differences(), 4);
        assert_eq!(differences(), 0);
        let mut expected = tree(&source);
        expected[3].0.remove("user.zerolane.temporary");
        assert_eq!(tree(&target), expected);
        let after = ["large", "none", "read-only", "d/small"].map(inode);
        assert_eq!(before, after, "only the attributes were set");
        // In place, and where the target is the same.
        for option in ["--in-place", "--resume"] {
            assert!(set(&target.join("large"), "user.too-much", b"x"));
            let (large, there) = (from.clone() + "/large", to.clone() + "/large");
            succeed(cp(&["-XA", option], large, there));
            assert_eq!(tree(&target), expected);
        }
    }
}

#[test]
fn xattrs__others_than_user_for_root_but_not_from_clients() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root, to set trusted attributes");
        return;
    }
    let lab = Lab::new(&[]);
    for base in [lab.local("tree"), lab.share("tree")] {
        fs::create_dir(&base).unwrap();
        for name in ["one", "two"] {
            fs::write(base.join(name), name).unwrap();
            let path = base.join(name);
            if !set(&path, "trusted.t", b"t") || !set(&path, "user.u", b"u") {
                return println!("skipped: no attributes here");
            }
        }
    }
    let [(from, to, up), (there, here, down)] = ways(&lab);
    succeed(cp(&["-X"], there, here));
    assert_eq!(of(&down.join("one")).len(), 2);
    // A server accepts none of these attributes from clients, and reports it once.
    let (code, _, err) = run(cp(&["-X"], from, to));
    assert_eq!(code, 0, "{err}");
    assert_eq!(
        err.matches("its extended attribute trusted.t was not kept")
            .count(),
        1,
        "{err}"
    );
    for name in ["one", "two"] {
        let names: Vec<_> = of(&up.join(name)).into_keys().collect();
        assert_eq!(names, ["user.u"]);
    }
}
