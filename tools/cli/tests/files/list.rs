//! Tests `zerolane ls`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use super::lab::*;

fn ls(lab: &Lab, options: &[&str], paths: &[&str]) -> Command {
    let mut command = zerolane();
    command.arg("ls").args(options);
    command.args(paths.iter().map(|path| lab.there(path)));
    command
}

fn tree() -> Lab {
    let lab = Lab::new(&["--read-only"]);
    fs::create_dir_all(lab.share("d/deep/.hidden")).unwrap();
    fs::write(lab.share("d/deep/.hidden/x"), b"x").unwrap();
    fs::write(lab.share("d/deep/b"), vec![0; 3000]).unwrap();
    fs::write(lab.share("d/.dot"), b"x").unwrap();
    fs::write(lab.share("f"), b"12345").unwrap();
    fs::write(lab.share("b\x1b[2J"), b"12345").unwrap();
    symlink("d/deep", lab.share("link")).unwrap();
    fs::set_permissions(lab.share("d"), fs::Permissions::from_mode(0o750)).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_059);
    fs::File::open(lab.share("f"))
        .unwrap()
        .set_modified(time)
        .unwrap();
    lab
}

#[test]
fn ls__names_and_long() {
    let lab = tree();
    assert_eq!(succeed(ls(&lab, &[], &[""])), "b\\x1b[2J\nd\nf\nlink\n");
    assert_eq!(succeed(ls(&lab, &[], &["d"])), "deep\n");
    assert_eq!(succeed(ls(&lab, &["-a"], &["d/"])), ".dot\ndeep\n");
    assert_eq!(succeed(ls(&lab, &[], &["d/.dot"])), "d/.dot\n");
    let out = succeed(ls(&lab, &["-l"], &[""]));
    let lines: Vec<_> = out.lines().collect();
    assert!(
        lines[1].starts_with("drwxr-x---") && lines[1].ends_with("  d"),
        "{out}"
    );
    assert!(lines[2].ends_with(" 5  2026-09-21 14:14  f"), "{out}");
    assert!(
        lines[3].starts_with('l') && lines[3].ends_with("  link -> d/deep"),
        "{out}"
    );
    let out = succeed(ls(&lab, &["-lh"], &["d/deep/b"]));
    assert!(
        out.contains(" 2.93 KiB  ") && out.ends_with("  d/deep/b\n"),
        "{out}"
    );
    assert!(succeed(ls(&lab, &["--help"], &[])).contains("--human-readable"));
}

#[test]
fn ls__recursive_and_several() {
    let lab = tree();
    assert_eq!(succeed(ls(&lab, &["-R"], &["d"])), "deep\ndeep/b\n");
    assert_eq!(
        succeed(ls(&lab, &["-Ra"], &["d"])),
        ".dot\ndeep\ndeep/.hidden\ndeep/.hidden/x\ndeep/b\n"
    );
    // Files come before directories, and links are not followed.
    assert_eq!(
        succeed(ls(&lab, &["-R"], &["d", "link", "f"])),
        "link\nf\n\nd:\ndeep\ndeep/b\n"
    );
    let (code, out, err) = run(ls(&lab, &[], &["f", "none", "link/"]));
    assert_eq!((code, &out[..]), (5, "f\n"));
    assert!(
        err.contains("none: no such file or directory, at the server"),
        "{err}"
    );
    assert!(err.contains("link/: the path leads outside"), "{err}");
    fail(
        ls(&lab, &[], &["none"]),
        1,
        "none: no such file or directory, at the server",
    );
    fail(ls(&lab, &[], &["../"]), 1, "outside the served directory");
    let mut two = ls(&lab, &[], &["f"]);
    two.arg("elsewhere:f");
    fail(two, 2, "all paths must be on one host");
}

#[test]
fn ls__json_is_one_object_for_each_entry() {
    let lab = tree();
    let parse = |out: String| -> Vec<serde_json::Value> {
        out.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let lines = parse(succeed(ls(&lab, &["--json"], &[""])));
    let names: Vec<_> = lines
        .iter()
        .map(|line| line["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["b\\x1b[2J", "d", "f", "link"]);
    assert_eq!(lines[2]["bytes"], 5);
    assert_eq!(lines[2]["mtime"], 1_790_000_059);
    assert_eq!(lines[3]["kind"], "link");
    assert_eq!(lines[3]["target"], "d/deep");
    assert!(lines[2].get("directory").is_none() && lines[2].get("target").is_none());
    let lines = parse(succeed(ls(&lab, &["--json", "-R"], &["d", "f"])));
    assert_eq!(lines[0]["name"], "f");
    assert!(lines[0].get("directory").is_none());
    assert_eq!(
        (&lines[2]["name"], &lines[2]["directory"]),
        (&"deep/b".into(), &"d".into())
    );
}

/// A listing is streamed: its beginning arrives early, and it ends when its reader does, however long it is.
#[test]
fn ls__ends_with_its_reader() {
    let lab = Lab::new(&[]);
    for directory in 0..20 {
        fs::create_dir(lab.share(&format!("{directory:02}"))).unwrap();
        for file in 0..500 {
            fs::write(lab.share(&format!("{directory:02}/{file:03}")), b"").unwrap();
        }
    }
    let out = succeed(ls(&lab, &["-R"], &[""]));
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 20 * 501);
    assert!(lines.is_sorted());
    let mut cut = ls(&lab, &["-R"], &[""]);
    let mut cut = cut
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(cut.stdout.take());
    assert_eq!(cut.wait().unwrap().code(), Some(1));
}
