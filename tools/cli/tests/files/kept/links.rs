//! Tests `-L`: copies of the files that links point to.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use super::*;

/// Plants files, directories, and links that stay inside, below `base`.
fn plant(base: &Path) {
    let at = |name: &str| base.join(name);
    fs::create_dir_all(at("sub/deep")).unwrap();
    fs::write(at("sub/deep/file"), b"file").unwrap();
    fs::write(at("large"), content(1, 2 * MIB + 3)).unwrap();
    for (name, target) in [
        ("to-file", "sub/deep/file"),
        ("to-large", "large"),
        ("to-directory", "sub"),
        ("sub/deep/up", "../../large"),
        ("sub/twice", "../to-file"),
        ("to-deep", "to-directory/deep"),
    ] {
        symlink(target, at(name)).unwrap();
    }
}

/// Path, kind, permissions and content of everything below `base`, and the times of files and links. rsync does not set
/// the times of directories after a failure.
fn tree(base: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![base.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let content = match meta.file_type() {
                kind if kind.is_dir() => "directory".into(),
                kind if kind.is_symlink() => format!("-> {:?}", fs::read_link(&path).unwrap()),
                _ => blake3::hash(&fs::read(&path).unwrap()).to_string(),
            };
            let name = path.strip_prefix(base).unwrap();
            let mode = meta.mode();
            let time = (!meta.is_dir()).then(|| (meta.mtime(), meta.mtime_nsec()));
            found.push(format!("{} {mode:o} {time:?} {content}", name.display()));
            if meta.is_dir() {
                left.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn copy_links__as_rsync_has_it() {
    let lab = Lab::new(&[]);
    for base in [lab.local("tree"), lab.share("tree")] {
        plant(&base);
        // Dangling links: each is a failure, and the other files are copied.
        symlink("missing", base.join("none")).unwrap();
        symlink("round", base.join("round")).unwrap();
    }
    for (from, to, target) in ways(&lab) {
        let source = if from.contains(':') {
            lab.share("tree")
        } else {
            lab.local("tree")
        };
        // Without -L links stay links.
        succeed(cp(&[], from.clone(), to.clone()));
        assert_eq!(tree(&target), tree(&source));
        fs::remove_dir_all(&target).unwrap();
        for command in [
            cp(&["-L"], from.clone(), to.clone()),
            sync(&["-L"], from, to),
        ] {
            let (code, _, err) = run(command);
            assert_eq!(code, 5, "{err}");
            for name in ["none", "round"] {
                let words = format!("{name}: is a symbolic link to nothing");
                assert!(err.contains(&words), "{err}");
            }
            assert!(err.contains("2 failed"), "{err}");
            let expected = lab.local("rsync");
            if let Some(code) = rsync(&["-aL"], &source, &expected) {
                assert_eq!(code, 23);
                assert_eq!(tree(&target), tree(&expected));
                fs::remove_dir_all(expected).unwrap();
            }
            assert_eq!(
                fs::read(target.join("to-deep/up")).unwrap(),
                content(1, 2 * MIB + 3)
            );
            fs::remove_dir_all(&target).unwrap();
        }
    }
}

#[test]
fn sync__copy_links_nothing_the_second_time() {
    let lab = Lab::new(&[]);
    for base in [lab.local("tree"), lab.share("tree")] {
        plant(&base);
    }
    for (from, to, target) in ways(&lab) {
        for options in [&["-L"][..], &["-L", "--delete", "--checksum"]] {
            succeed(sync(options, from.clone(), to.clone()));
        }
        let before = tree(&target);
        let mut again = sync(&["-L", "--delete", "--json"], from.clone(), to.clone());
        again.arg("-v");
        let out = succeed(again);
        assert!(!out.contains(r#""event":"change""#), "{out}");
        // A link's target changed, and then only its time.
        let source = if from.contains(':') {
            lab.share("tree")
        } else {
            lab.local("tree")
        };
        fs::write(source.join("sub/deep/file"), b"FILE").unwrap();
        let large = fs::File::options()
            .write(true)
            .open(source.join("large"))
            .unwrap();
        large
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
        fs::set_permissions(
            source.join("large"),
            std::os::unix::fs::PermissionsExt::from_mode(0o600),
        )
        .unwrap();
        succeed(sync(&["-L", "--checksum"], from.clone(), to.clone()));
        assert_eq!(fs::read(target.join("sub/twice")).unwrap(), b"FILE");
        assert_eq!(target.join("sub/deep/up").metadata().unwrap().mtime(), 0);
        assert_ne!(tree(&target), before);
        // Back to links.
        succeed(sync(&["--delete"], from, to));
        assert_eq!(tree(&target), tree(&source));
    }
}

#[test]
fn copy_links__in_a_circle_is_told() {
    let lab = Lab::new(&[]);
    for base in [lab.local("tree"), lab.share("tree")] {
        fs::create_dir_all(base.join("a/b")).unwrap();
        fs::write(base.join("a/b/f"), b"f").unwrap();
        symlink("../..", base.join("a/b/top")).unwrap();
        symlink(".", base.join("self")).unwrap();
    }
    for (from, to, target) in ways(&lab) {
        for mut command in [
            cp(&["-L"], from.clone(), to.clone()),
            sync(&["-L"], from, to),
        ] {
            // Also with a count first.
            let (code, out, err) = run({
                command.arg("--json");
                command
            });
            assert_eq!(code, 5, "{err}");
            let failed: Vec<serde_json::Value> = out
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .filter(|it: &serde_json::Value| it["event"] == "failed")
                .collect();
            let mut paths: Vec<_> = failed
                .iter()
                .map(|it| it["path"].as_str().unwrap())
                .collect();
            paths.sort();
            assert!(
                paths[0].ends_with("a/b/top") && paths[1].ends_with("self"),
                "{out}"
            );
            assert_eq!(paths.len(), 2, "{out}");
            assert!(
                out.contains("is a symbolic link to a directory that contains it"),
                "{out}"
            );
            assert_eq!(fs::read(target.join("a/b/f")).unwrap(), b"f");
            assert_eq!(names(&target), ["a"]);
            fs::remove_dir_all(&target).unwrap();
        }
    }
}

#[test]
fn copy_links__one_that_is_named() {
    let lab = Lab::new(&[]);
    for base in [lab.local("tree"), lab.share("tree")] {
        plant(&base);
    }
    succeed(lab.put(&["-L"], "tree/to-file", "new"));
    assert_eq!(fs::read(lab.share("new")).unwrap(), b"file");
    succeed(lab.put(&["-rL"], "tree/to-directory", "named"));
    assert_eq!(fs::read(lab.share("named/twice")).unwrap(), b"file");
    succeed(lab.get(&["-L"], "tree/sub/twice", "new"));
    assert_eq!(fs::read(lab.local("new")).unwrap(), b"file");
    succeed(lab.get(&["-rL"], "tree/to-directory", "named"));
    assert_eq!(fs::read(lab.local("named/twice")).unwrap(), b"file");
    // A directory behind a link needs -r, like any directory.
    fail(
        lab.put(&["-L"], "tree/to-directory", "x"),
        1,
        "use -r to include it",
    );
}

#[test]
fn copy_links__out_of_a_served_directory_is_refused() {
    let lab = Lab::new(&[]);
    plant(&lab.share("tree"));
    fs::create_dir(lab.local("private")).unwrap();
    fs::write(lab.local("private/secret"), b"secret").unwrap();
    for (name, target) in [
        ("out", "../../local/private/secret".into()),
        ("out-directory", "../../local/private".into()),
        ("sub/absolute", text(&lab.local("private/secret"))),
        ("sub/inside", text(&lab.share("tree/large"))),
    ] {
        symlink(target, lab.share("tree").join(name)).unwrap();
    }
    let [_, (from, to, target)] = ways(&lab);
    for command in [
        cp(&["-L"], from.clone(), to.clone()),
        sync(&["-L"], from, to),
    ] {
        let (code, _, err) = run(command);
        assert_eq!(code, 5, "{err}");
        // A directory that is reached by two ways has its links twice.
        for name in [
            "out",
            "out-directory",
            "sub/absolute",
            "sub/inside",
            "to-directory/absolute",
        ] {
            let words = format!("{name}: the path leads outside the served directory");
            assert!(err.contains(&words), "{err}");
            assert!(target.join(name).symlink_metadata().is_err());
        }
        assert_eq!(fs::read(target.join("to-file")).unwrap(), b"file");
        fs::remove_dir_all(&target).unwrap();
    }
    // Local links lead to their targets.
    plant(&lab.local("tree"));
    symlink("../private", lab.local("tree/out")).unwrap();
    succeed(lab.put(&["-rL"], "tree", "own"));
    assert_eq!(fs::read(lab.share("own/out/secret")).unwrap(), b"secret");
}
