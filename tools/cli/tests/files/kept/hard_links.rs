//! Tests `-H`: files with several names.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::super::login::Login;
use super::*;

/// Names of files, and other names linked to them: in the same and in other directories, of small, large, empty and
/// read-only files.
const LINKED: [(&str, &str); 8] = [
    ("a/small", "a/small too"),
    ("a/small", "b/c/small"),
    ("a/small", "z"),
    ("b/large", "a/large"),
    ("b/large", "b/large too"),
    ("b/none", "b/c/none"),
    ("read-only", "b/read-only"),
    ("b/c/deep", "b/last"),
];

fn plant(base: &Path) {
    let at = |name: &str| base.join(name);
    fs::create_dir_all(at("a")).unwrap();
    fs::create_dir_all(at("b/c")).unwrap();
    for (name, content) in [
        ("a/small", b"small".to_vec()),
        ("a/alone", b"small".to_vec()),
        ("b/large", content(1, 2 * MIB + 3)),
        ("b/none", vec![]),
        ("read-only", b"r".to_vec()),
        ("b/c/deep", b"deep".to_vec()),
    ] {
        fs::write(at(name), content).unwrap();
        set_time(&at(name), 1_000_000_000);
    }
    fs::set_permissions(at("read-only"), fs::Permissions::from_mode(0o444)).unwrap();
    symlink("small", at("a/link")).unwrap();
    for (first, other) in LINKED {
        fs::hard_link(at(first), at(other)).unwrap();
    }
}

fn set_time(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    File::open(path).unwrap().set_modified(time).unwrap();
}

/// All files below `base`, by path: content, permissions, time, and the names of the same file.
fn tree(base: &Path) -> BTreeMap<String, (String, u32, i64, Vec<String>)> {
    let mut names: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut left = vec![base.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            match meta.is_dir() {
                true => left.push(path),
                false => {
                    let name = text(path.strip_prefix(base).unwrap());
                    names.entry(meta.ino()).or_default().push(name);
                }
            }
        }
    }
    let mut tree = BTreeMap::new();
    for mut group in names.into_values() {
        group.sort();
        for name in &group {
            let path = base.join(name);
            let meta = path.symlink_metadata().unwrap();
            let content = match meta.is_symlink() {
                true => format!("{:?}", fs::read_link(&path).unwrap()),
                false => blake3::hash(&fs::read(&path).unwrap()).to_string(),
            };
            let time = if meta.is_symlink() { 0 } else { meta.mtime() };
            tree.insert(name.clone(), (content, meta.mode(), time, group.clone()));
        }
    }
    tree
}

/// The directory of the tree at its source.
fn source(lab: &Lab, from: &str) -> PathBuf {
    match from.contains(':') {
        true => lab.share("tree"),
        false => lab.local("tree"),
    }
}

/// A lab with the tree at both ends.
fn planted() -> Lab {
    let lab = Lab::new(&[]);
    plant(&lab.local("tree"));
    plant(&lab.share("tree"));
    lab
}

/// The summary of a command that must succeed. Its bytes must equal those counted before.
fn numbers(mut command: Command) -> serde_json::Value {
    command.arg("--json");
    let out = succeed(command);
    let events: Vec<serde_json::Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let summary = events.last().unwrap();
    let counted = events.iter().find(|it| it["event"] == "counted").unwrap();
    assert_eq!(counted["bytes"], summary["bytes"], "{out}");
    summary.clone()
}

fn inodes(base: &Path) -> BTreeMap<String, u64> {
    let inode = |name: &String| base.join(name).symlink_metadata().unwrap().ino();
    let names = tree(base).into_keys();
    names.map(|name| (name.clone(), inode(&name))).collect()
}

#[test]
fn hard_links__as_rsync_has_them() {
    let lab = planted();
    for (from, to, target) in ways(&lab) {
        let source = source(&lab, &from);
        // Without -H each name becomes a file.
        succeed(cp(&[], from.clone(), to.clone()));
        assert!(tree(&target).values().all(|it| it.3.len() == 1));
        fs::remove_dir_all(&target).unwrap();
        for command in [
            cp(&["-H"], from.clone(), to.clone()),
            cp(&["-H", "--in-place", "--fsync"], from.clone(), to.clone()),
            sync(&["-H"], from.clone(), to.clone()),
            sync(&["-H", "--checksum", "--delta", "--fsync"], from, to),
        ] {
            let summary = numbers(command);
            assert_eq!(summary["hard_links"], LINKED.len(), "{summary}");
            // A file with several names is sent once.
            assert_eq!(summary["bytes"], 2 * MIB + 3 + 5 + 5 + 1 + 4, "{summary}");
            assert_eq!(tree(&target), tree(&source));
            let expected = lab.local("rsync");
            if rsync(&["-aH"], &source, &expected).is_some() {
                assert_eq!(tree(&target), tree(&expected));
                fs::remove_dir_all(expected).unwrap();
            }
            fs::remove_dir_all(&target).unwrap();
        }
    }
}

/// The summary of a sync with deletion and hard links.
fn mirrored(options: &[&str], from: &str, to: &str) -> serde_json::Value {
    let options = [&["-H", "--delete"], options].concat();
    numbers(sync(&options, from.to_owned(), to.to_owned()))
}

#[test]
fn sync__hard_links_nothing_the_second_time_and_missing_ones_again() {
    let lab = planted();
    for (from, to, target) in ways(&lab) {
        let source = source(&lab, &from);
        let again = |options: &[&str]| mirrored(options, &from, &to);
        again(&[]);
        let before = inodes(&target);
        for options in [&[][..], &["--checksum"], &["-v"]] {
            let summary = again(options);
            let counts = ["sent", "hard_links", "attributes", "deleted", "bytes"];
            for count in counts {
                assert_eq!(summary[count], 0, "{count}: {summary}");
            }
            assert_eq!(summary["unchanged"], 15, "{summary}");
        }
        assert_eq!(inodes(&target), before);
        // Three become separate files, one disappears, and one becomes a link of another file.
        for name in ["a/small too", "b/large", "b/read-only"] {
            let path = target.join(name);
            let (content, mode) = (fs::read(&path).unwrap(), path.metadata().unwrap().mode());
            fs::remove_file(&path).unwrap();
            fs::write(&path, content).unwrap();
            set_time(&path, 1_000_000_000);
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::remove_file(target.join("z")).unwrap();
        fs::remove_file(target.join("b/last")).unwrap();
        fs::hard_link(target.join("b/none"), target.join("b/last")).unwrap();
        fs::hard_link(target.join("b/none"), target.join("too much")).unwrap();
        let mut dry = sync(&["-H", "-n", "--delete"], from.clone(), to.clone());
        dry.arg("--json");
        let out = succeed(dry);
        assert!(
            out.contains(r#""action":"linked","kind":"file","path":"z""#),
            "{out}"
        );
        assert_ne!(tree(&target), tree(&source));
        let summary = again(&[]);
        assert_eq!(
            (&summary["sent"], &summary["bytes"], &summary["deleted"]),
            (&0.into(), &0.into(), &1.into()),
            "{summary}"
        );
        assert_eq!(tree(&target), tree(&source));
        assert_eq!(again(&[])["unchanged"], 15);
    }
}

#[test]
fn sync__hard_links_of_files_that_change() {
    let lab = planted();
    for (from, to, target) in ways(&lab) {
        let source = source(&lab, &from);
        let again = |options: &[&str]| mirrored(options, &from, &to);
        again(&[]);
        for (at, options) in [&[][..], &["--delta"], &["--in-place"], &["--checksum"]]
            .into_iter()
            .enumerate()
        {
            let file = File::options().write(true).open(source.join("b/large"));
            std::os::unix::fs::FileExt::write_all_at(&file.unwrap(), b"new", at as u64).unwrap();
            set_time(&source.join("a/small"), 1_100_000_000 + at as u64);
            let mode = fs::Permissions::from_mode(0o600 + at as u32 * 8);
            fs::set_permissions(source.join("b/none"), mode).unwrap();
            again(options);
            assert_eq!(tree(&target), tree(&source), "{options:?}");
            assert_eq!(again(&[])["unchanged"], 15, "{options:?}");
        }
        // Names appear, disappear, and move to another file.
        fs::remove_file(source.join("a/small")).unwrap();
        fs::hard_link(source.join("b/none"), source.join("a/small")).unwrap();
        fs::remove_file(source.join("b/large too")).unwrap();
        fs::hard_link(source.join("a/alone"), source.join("b/c/not alone")).unwrap();
        fs::remove_file(source.join("b/read-only")).unwrap();
        fs::write(source.join("b/read-only"), b"r").unwrap();
        again(&[]);
        assert_eq!(tree(&target), tree(&source));
    }
}

#[test]
fn sync__hard_links_where_something_else_was() {
    let lab = planted();
    for (from, to, target) in ways(&lab) {
        let source = source(&lab, &from);
        fs::create_dir_all(&target).unwrap();
        // Directories in the place of files and links, and the reverse.
        fs::create_dir_all(target.join("z/inside")).unwrap();
        fs::create_dir_all(target.join("b/large too")).unwrap();
        fs::write(target.join("a"), b"file").unwrap();
        symlink("nowhere", target.join("b/c")).unwrap();
        symlink("nowhere", target.join("b/last")).unwrap();
        let command = sync(&["-H", "--delete"], from.clone(), to.clone());
        assert_eq!(numbers(command)["hard_links"], LINKED.len());
        assert_eq!(tree(&target), tree(&source));
        let command = sync(&["-H", "--delete"], from.clone(), to.clone());
        assert_eq!(numbers(command)["unchanged"], 15);
    }
}

#[test]
fn sync__hard_links_over_more_than_one_request() {
    let lab = Lab::new(&[]);
    // The messages about these files exceed 1 MiB.
    let long = "x".repeat(200);
    for base in [lab.local("tree"), lab.share("tree")] {
        for directory in ["a", "b"] {
            fs::create_dir_all(base.join(directory)).unwrap();
            for file in 0..3000 {
                let name = format!("{directory}/{long}{file}");
                match directory {
                    "a" => fs::write(base.join(name), format!("{file}")).unwrap(),
                    _ => fs::hard_link(base.join(format!("a/{long}{file}")), base.join(name))
                        .unwrap(),
                }
            }
        }
    }
    for (from, to, target) in ways(&lab) {
        let source = source(&lab, &from);
        let summary = numbers(sync(&["-H"], from.clone(), to.clone()));
        let counts = (&summary["sent"], &summary["hard_links"]);
        assert_eq!(counts, (&3000.into(), &3000.into()), "{summary}");
        assert_eq!(tree(&target), tree(&source));
        let summary = numbers(sync(&["-H"], from, to));
        assert_eq!(summary["unchanged"], 6000, "{summary}");
    }
}

#[test]
fn hard_links__of_several_sources_and_of_what_is_named() {
    let lab = planted();
    let mut put = zerolane();
    put.args(["cp", "-rH"]);
    put.args(["tree/a", "tree/b", "tree/z"].map(|it| lab.local(it)));
    fs::create_dir(lab.share("up")).unwrap();
    succeed({
        put.arg(lab.there("up"));
        put
    });
    let mut get = zerolane();
    get.args(["cp", "-rH"]);
    get.args(["tree/a", "tree/b", "tree/z"].map(|it| lab.there(it)));
    fs::create_dir(lab.local("down")).unwrap();
    succeed({
        get.arg(lab.local("down"));
        get
    });
    let mut expected = tree(&lab.local("tree"));
    expected.remove("read-only");
    expected.get_mut("b/read-only").unwrap().3 = vec!["b/read-only".into()];
    assert_eq!(tree(&lab.share("up")), expected);
    assert_eq!(tree(&lab.local("down")), expected);
    // Also files behind links, if links are followed.
    symlink("../z", lab.local("tree/b/to-z")).unwrap();
    succeed(lab.put(&["-rHL"], "tree", "followed"));
    let followed = tree(&lab.share("followed"));
    assert_eq!(followed["z"].3.len(), 6, "{:?}", followed["z"]);
}

#[test]
fn hard_links__over_a_remote_shell() {
    let login = Login::new();
    plant(&login.path("local/tree"));
    let there = login.there("copy");
    let expected = tree(&login.path("local/tree"));
    succeed(login.zerolane(&["cp", "-rH", "local/tree", &there]));
    assert_eq!(tree(&login.path("home/copy")), expected);
    succeed(login.zerolane(&["sync", "-H", &there, "local/back"]));
    assert_eq!(tree(&login.path("local/back")), expected);
    let (code, _, err) = run(login.zerolane(&["sync", "-H", "local/tree", &there]));
    assert!(code == 0 && err.contains("15 unchanged, 0 sent"), "{err}");
}
