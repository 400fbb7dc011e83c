//! Tests `--owner`: users and groups by number.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, lchown, symlink};

use super::*;

const NOBODY: u32 = 65534;

fn plant(base: &Path) {
    fs::create_dir_all(base.join("d/of-group")).unwrap();
    fs::write(base.join("d/small"), b"small").unwrap();
    fs::write(base.join("large"), content(1, 2 * MIB + 3)).unwrap();
    fs::write(base.join("own"), b"own").unwrap();
    symlink("large", base.join("link")).unwrap();
    // Numbers without names on this machine.
    chown(base.join("d"), Some(4_000_001), Some(4_000_002)).unwrap();
    chown(base.join("d/of-group"), None, Some(4_000_003)).unwrap();
    chown(base.join("d/small"), Some(4_000_001), None).unwrap();
    chown(base.join("large"), Some(4_000_004), Some(4_000_002)).unwrap();
    lchown(base.join("link"), Some(4_000_005), Some(4_000_006)).unwrap();
}

/// Path and owner of everything below `base`.
fn owners(base: &Path) -> Vec<(String, u32, u32)> {
    let of = |name: &str| {
        let meta = base.join(name).symlink_metadata().unwrap();
        (name.to_owned(), meta.uid(), meta.gid())
    };
    let names = ["d", "d/of-group", "d/small", "large", "link", "own"];
    names.map(of).to_vec()
}

#[test]
fn owner__as_rsync_has_it() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root, to give files away");
        return;
    }
    let lab = Lab::new(&[]);
    plant(&lab.local("tree"));
    plant(&lab.share("tree"));
    let before = owners(&lab.local("tree"));
    for (from, to, target) in ways(&lab) {
        for make in [cp, sync] {
            // Without the option, owners are not kept.
            succeed(make(&[], from.clone(), to.clone()));
            let mut owners_now = owners(&target).into_iter();
            assert!(owners_now.all(|(_, uid, gid)| (uid, gid) == (0, 0)));
            fs::remove_dir_all(&target).unwrap();
            succeed(make(&["--owner"], from.clone(), to.clone()));
            assert_eq!(owners(&target), before);
            fs::remove_dir_all(&target).unwrap();
        }
        let expected = lab.local("rsync");
        if rsync(&["-a", "--numeric-ids"], &lab.local("tree"), &expected).is_some() {
            assert_eq!(owners(&expected), before);
            fs::remove_dir_all(expected).unwrap();
        }
        // For existing files, only the owner is set; then nothing.
        succeed(sync(&[], from.clone(), to.clone()));
        let large = target.join("large").metadata().unwrap().ino();
        for changes in [true, false] {
            let out = succeed(sync(&["--owner", "-v"], from.clone(), to.clone()));
            assert_eq!(out.contains("attributes large"), changes, "{out}");
            assert_eq!(out.lines().count() > 0, changes, "{out}");
            assert_eq!(owners(&target), before);
        }
        assert_eq!(target.join("large").metadata().unwrap().ino(), large);
        // In place, and where the target is the same.
        for option in ["--in-place", "--resume"] {
            chown(target.join("large"), Some(0), Some(0)).unwrap();
            let all = from.clone() + "/.";
            succeed(cp(&["--owner", option], all, to.clone()));
            assert_eq!(owners(&target), before);
        }
    }
}

#[test]
fn owner__where_it_may_not_be_set_is_told_once() {
    // Files of root.
    let sources = ["/etc/passwd", "/etc/group"];
    let root = nix::unistd::geteuid().is_root();
    let options: &[&str] = if root { &["--user", "nobody"] } else { &[] };
    let lab = Lab::new(options);
    if root {
        chown(lab.share(""), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    for json in [&[][..], &["--json"]] {
        let mut put = zerolane();
        put.args(["cp", "--owner"]).args(json).args(sources);
        put.arg(lab.there(""));
        let (code, out, err) = run(put);
        assert_eq!(code, 0, "{err}");
        let said = out + &err;
        let times = said.matches("its owner was not kept").count();
        assert_eq!(times, 1, "{said}");
        assert!(said.contains("passwd") && said.contains("at"), "{said}");
        for name in ["passwd", "group"] {
            let here = fs::read(Path::new("/etc").join(name)).unwrap();
            assert_eq!(fs::read(lab.share(name)).unwrap(), here);
        }
    }
}
