//! Tests changing permissions on the way, and leaving them alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// Permissions of everything below `base`, by path.
fn modes(base: &Path) -> Vec<(String, u32)> {
    fn walk(base: &Path, below: &str, found: &mut Vec<(String, u32)>) {
        for name in names(&base.join(below)) {
            let path = format!("{below}/{name}").trim_start_matches('/').to_owned();
            let meta = base.join(&path).symlink_metadata().unwrap();
            found.push((path.clone(), meta.permissions().mode() & 0o7777));
            if meta.is_dir() {
                walk(base, &path, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(base, "", &mut found);
    found
}

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Plants files and directories of unusual permissions, a large and a small file for each.
fn plant(base: &Path) {
    fs::create_dir_all(base.join("d/e")).unwrap();
    for (name, mode) in [
        ("run", 0o754),
        ("d/plain", 0o640),
        ("d/open", 0o666),
        ("d/e/own", 0o600),
    ] {
        fs::write(base.join(name), content(1, 1000)).unwrap();
        set(&base.join(name), mode);
    }
    fs::write(base.join("d/large"), content(2, 3 * MIB)).unwrap();
    set(&base.join("d/large"), 0o777);
    set(&base.join("d/e"), 0o700);
    set(&base.join("d"), 0o775);
}

/// The result of rsync for `a` with these options; `None` if rsync is not installed.
fn by_rsync(lab: &Lab, options: &[&str], target: &str) -> Option<Vec<(String, u32)>> {
    let target = lab.local(target);
    let mut rsync = Command::new("rsync");
    rsync
        .arg("-rt")
        .args(options)
        .arg(lab.local("a/"))
        .arg(&target);
    let Ok(done) = rsync.output() else {
        println!("skipped: there is no rsync");
        return None;
    };
    assert!(done.status.success(), "{done:?}");
    Some(modes(&target))
}

#[test]
fn chmod__either_way_and_as_rsync() {
    let lab = Lab::new(&[]);
    for tree in [lab.local("a"), lab.share("a")] {
        plant(&tree);
    }
    for (number, options) in [
        &["--chmod=D750,F640"][..],
        &["--chmod=go-w", "--chmod=a+rX"],
        &["--chmod=ug=rwX,o=", "--chmod=Fg-w"],
        &["--chmod=Do+rx,+X"],
        &["--chmod=g=u,o-rwx"],
    ]
    .into_iter()
    .enumerate()
    {
        let name = |what: &str| format!("{what}{number}");
        let (t, u, v, w, r) = (name("t"), name("u"), name("v"), name("w"), name("r"));
        let recursive = [&["-r"], options].concat();
        succeed(lab.put(&recursive, "a/.", &t));
        succeed(lab.get(&recursive, "a/.", &u));
        let sync = |from: &dyn AsRef<std::ffi::OsStr>, to: &dyn AsRef<std::ffi::OsStr>| {
            let mut command = zerolane();
            command
                .args(["sync", "--json"])
                .args(options)
                .arg(from)
                .arg(to);
            let out = succeed(command);
            serde_json::from_str::<serde_json::Value>(out.lines().last().unwrap()).unwrap()
        };
        for (from, to) in [
            (lab.local("a").into_os_string(), lab.there(&v).into()),
            (lab.there("a").into(), lab.local(&w).into_os_string()),
        ] {
            assert_eq!(sync(&from, &to)["sent"], 5);
            // The changed permissions are compared.
            let again = sync(&from, &to);
            assert_eq!(
                (&again["sent"], &again["attributes"]),
                (&0.into(), &0.into()),
                "{options:?}"
            );
        }
        let expected = modes(&lab.share(&t));
        assert_ne!(expected, modes(&lab.local("a")), "{options:?}");
        for target in [lab.local(&u), lab.share(&v), lab.local(&w)] {
            assert_eq!(modes(&target), expected, "{options:?} {}", target.display());
        }
        let with = [&["-p"], options].concat();
        if let Some(rsync) = by_rsync(&lab, &with, &r) {
            assert_eq!(rsync, expected, "{options:?}");
        }
    }
    // If only permissions differ, they are set without sending the file.
    let mut sync = zerolane();
    sync.args(["sync", "--json", "--chmod=F600"])
        .arg(lab.there("a"))
        .arg(lab.local("w0"));
    assert!(succeed(sync).contains("\"attributes\":5"));
    assert!(modes(&lab.local("w0")).contains(&("d/large".into(), 0o600)));
    fail(
        lab.put(&["-r", "--chmod=D2775"], "a", "x"),
        2,
        "a copy never sets",
    );
    fail(
        lab.put(&["-r", "--chmod=u~w"], "a", "x"),
        2,
        "not a change of permissions",
    );
}

#[test]
fn no_perms__what_is_there_keeps_its_own_and_what_is_new_gets_what_a_new_file_may() {
    let lab = Lab::new(&[]);
    for tree in [lab.local("a"), lab.share("a")] {
        plant(&tree);
    }
    let targets = || {
        [
            lab.share("t"),
            lab.local("u"),
            lab.share("v"),
            lab.local("w"),
            lab.local("r"),
        ]
    };
    for target in targets() {
        fs::create_dir_all(target.join("d")).unwrap();
        for (name, mode) in [("run", 0o604), ("d/large", 0o620)] {
            fs::write(target.join(name), content(3, 2 * MIB)).unwrap();
            set(&target.join(name), mode);
        }
        set(&target.join("d"), 0o711);
    }
    let copy = |options: &[&str]| {
        succeed(lab.put(&[&["-r", "--no-perms"], options].concat(), "a/.", "t"));
        succeed(lab.get(&[&["-r", "--no-perms"], options].concat(), "a/.", "u"));
        for (from, to) in [
            (lab.local("a").into_os_string(), lab.there("v").into()),
            (lab.there("a").into(), lab.local("w").into_os_string()),
        ] {
            let mut sync = zerolane();
            sync.args(["sync", "--no-perms"])
                .args(options)
                .arg(from)
                .arg(to);
            succeed(sync);
        }
    };
    copy(&[]);
    let Some(expected) = by_rsync(&lab, &["--no-p"], "r") else {
        return;
    };
    let check = || {
        for target in targets() {
            assert_eq!(modes(&target), expected, "{}", target.display());
        }
    };
    check();
    assert!(expected.contains(&("run".into(), 0o604)) && expected.contains(&("d".into(), 0o711)));
    // For every way to write a file.
    for target in targets() {
        fs::write(target.join("d/large"), content(4, 3 * MIB)).unwrap();
    }
    for options in [
        &["--in-place"][..],
        &["--delta"],
        &["--in-place", "--delta"],
        &["--resume"],
    ] {
        copy(options);
        check();
    }
    // Differing permissions alone do not count.
    set(&lab.share("v/run"), 0o640);
    let mut sync = zerolane();
    sync.args(["sync", "--json", "--no-perms"])
        .arg(lab.local("a"))
        .arg(lab.there("v"));
    assert!(succeed(sync).contains("\"attributes\":0"));
    assert!(modes(&lab.share("v")).contains(&("run".into(), 0o640)));
    fail(
        lab.put(&["-r", "-A", "--no-perms"], "a", "x"),
        2,
        "cannot be used with",
    );
}
