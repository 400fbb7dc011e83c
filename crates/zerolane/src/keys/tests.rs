#![allow(non_snake_case)]
use super::*;
use crate::security::{Identity, PublicKey, Trust};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn key(n: u8) -> PublicKey {
    Identity::from_secret([n; 32]).public()
}

fn permit(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn identity__made_once_and_kept() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("deep/identity");
    assert!(identity::load(&path).unwrap().is_none());
    let made = identity::load_or_create(&path).unwrap().public();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_eq!(identity::load(&path).unwrap().unwrap().public(), made);
    assert_eq!(identity::load_or_create(&path).unwrap().public(), made);
    assert!(matches!(identity::create(&path), Err(Error::Exists(_))));
    let left: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing beside it: {left:?}");
}

#[test]
fn identity__beside_one_that_a_process_of_this_number_writes() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("identity");
    let theirs = home
        .path()
        .join(format!("identity.{}.new", std::process::id()));
    std::fs::write(&theirs, b"half of").unwrap();
    identity::create(&path).unwrap();
    assert!(identity::load(&path).unwrap().is_some());
    assert_eq!(std::fs::read(&theirs).unwrap(), b"half of");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 2);
}

#[test]
fn identity__that_others_may_read_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("identity");
    identity::create(&path).unwrap();
    for open in [0o640, 0o604, 0o660, 0o700 | 0o001] {
        permit(&path, open);
        let refused = identity::load(&path);
        assert!(matches!(refused, Err(Error::Exposed { .. })), "{open:o}");
    }
    permit(&path, 0o400);
    assert!(identity::load(&path).unwrap().is_some());
}

#[test]
fn identity__parse_refuses_what_is_no_key() {
    for text in [
        "",
        "# only words",
        "zl-secret:",
        "zl-secret:AAAA",
        "zl:AAAA",
    ] {
        assert!(identity::parse(text).is_err(), "{text}");
    }
}

#[test]
fn known_hosts__first_again_and_changed() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("known_hosts");
    let known = KnownHosts::load(&path).unwrap();
    let trust = known.trust("a:1", None);
    assert_eq!(trust.meeting(), None);
    assert!(trust.trusts(&key(1)));
    let first = Meeting::First {
        key: key(1),
        kept: true,
    };
    assert_eq!(trust.meeting(), Some(first));
    known.remember("[::1]:2", key(2)).unwrap();

    let known = KnownHosts::load(&path).unwrap();
    assert_eq!(known.key_of("a:1"), Some(key(1)));
    assert_eq!(known.key_of("[::1]:2"), Some(key(2)));
    assert_eq!(known.key_of("b:1"), None);
    assert_eq!(known.key_of("c:1"), None, "our own is not remembered");
    assert!(known.trust("a:1", None).trusts(&key(1)));
    let trust = known.trust("a:1", None);
    assert!(!trust.trusts(&key(2)), "another key");
    let changed = Meeting::Changed {
        known: key(1),
        shown: key(2),
    };
    assert_eq!(trust.meeting(), Some(changed));
    known.remember("a:1", key(2)).unwrap();
    let known = KnownHosts::load(&path).unwrap();
    assert_eq!(known.key_of("a:1"), Some(key(1)), "never overwritten");
}

#[test]
fn known_hosts__broken_or_writable_by_others_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("known_hosts");
    std::fs::write(&path, "a:1 zl:short\n").unwrap();
    let broken = KnownHosts::load(&path);
    assert!(matches!(broken, Err(Error::Syntax { line: 1, .. })));
    std::fs::write(&path, "").unwrap();
    permit(&path, 0o666);
    let exposed = KnownHosts::load(&path);
    assert!(matches!(exposed, Err(Error::Exposed { .. })));
}

#[test]
fn allow_list__rights() {
    let text = format!(
        "# friends\n\n{} read\n{}  read-write below=in/box # one of them\n{} below=x read\n\
         {} regions=a,b read\n{} fetch read regions=n below=in\n",
        key(1),
        key(2),
        key(3),
        key(4),
        key(5)
    );
    let list = AllowList::parse(&text).unwrap();
    assert_eq!(list.len(), 5);
    let rights = |n| list.rights(&key(n)).unwrap();
    let files = |n| (rights(n).files(), rights(n).write);
    assert_eq!(files(1), (Some(&b""[..]), false));
    assert_eq!(files(2), (Some(&b"in/box"[..]), true));
    assert_eq!(files(3), (Some(&b"x"[..]), false));
    assert_eq!(files(4), (None, false), "it is for regions");
    assert_eq!(files(5), (Some(&b"in"[..]), false));
    assert_eq!(list.rights(&key(6)), None);
}

#[test]
fn rights__of_memory() {
    use crate::Rights as Of;
    let of = |line: &str, name, offered| {
        let list = AllowList::parse(&format!("{} {line}", key(1))).unwrap();
        list.rights(&key(1)).unwrap().memory(name, offered)
    };
    let counting = Of::READ.with(Of::ATOMIC);
    for (line, name, granted) in [
        ("read", "a", Of::READ),
        ("read-write", "a", Of::ALL),
        ("read fetch", "a", counting),
        ("read regions=a", "a", Of::READ),
        ("read-write regions=b,a", "a", Of::ALL),
        ("read fetch regions=a", "a", counting),
        // Of another name; a part of a name, or the list as a name, is another one.
        ("read-write regions=a", "b", Of::NONE),
        ("read-write regions=a,b", "ab", Of::NONE),
        ("read-write regions=ab", "a", Of::NONE),
        ("read-write regions=a,b", "a,b", Of::NONE),
        // For files only, and for both.
        ("read-write below=in", "a", Of::NONE),
        ("read-write below=in regions=a", "a", Of::ALL),
        ("read-write below=in regions=a", "b", Of::NONE),
    ] {
        assert_eq!(of(line, name, Of::ALL), granted, "{line}, region {name}");
        // Never more than is offered to all.
        for offered in [Of::NONE, Of::READ, Of::WRITE, Of::ATOMIC] {
            assert!(offered.contains(of(line, name, offered)), "{line}");
            assert!(granted.contains(of(line, name, offered)), "{line}");
        }
    }
}

#[test]
fn allow_list__a_broken_line_breaks_it_all() {
    let key = key(1);
    for line in [
        format!("{key}"),
        format!("{key} write"),
        format!("{key} read read"),
        format!("{key} read read-write"),
        format!("{key} read below=../up"),
        format!("{key} read below=/up"),
        format!("{key} read below=a\0b"),
        format!("{key} read below={}", "n".repeat(256)),
        format!("{key} read below={}", "n/".repeat(2048)),
        format!("{key} read below=a below=b"),
        format!("{key} regions=a"),
        format!("{key} fetch"),
        format!("{key} read regions="),
        format!("{key} read regions=a,,b"),
        format!("{key} read regions=a, b"),
        format!("{key} read regions={}", "n".repeat(33)),
        format!("{key} read regions=a regions=b"),
        format!("{key} read fetch fetch"),
        format!("{key} read\n{key} read-write"),
        "zl:x read".to_owned(),
    ] {
        assert!(AllowList::parse(&line).is_err(), "{line}");
    }
}

#[test]
fn allow_file__is_read_again_and_a_broken_one_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("allowed_keys");
    let file = AllowFile::load(&path, Some(key(9))).unwrap();
    assert!(file.trusts(&key(9)) && !file.trusts(&key(1)));
    std::fs::write(&path, format!("{} read\n", key(1))).unwrap();
    assert!(file.trusts(&key(1)));
    assert_eq!(file.news(), Some(Ok(2)));
    assert_eq!(file.news(), None, "told once");
    std::fs::write(
        &path,
        "nonsense that is longer than the line before, surely\n".repeat(2),
    )
    .unwrap();
    assert!(file.trusts(&key(1)), "the last good one is in force");
    assert!(matches!(file.news(), Some(Err(why)) if why.starts_with("line 1: ")));
    assert_eq!(file.news(), None, "told once");
    std::fs::remove_file(&path).unwrap();
    assert!(!file.trusts(&key(1)) && file.trusts(&key(9)));
    assert_eq!(file.news(), Some(Ok(1)));
}

#[test]
fn allow_file__sees_a_change_that_keeps_length_and_time() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("allowed_keys");
    std::fs::write(&path, format!("{} read\n", key(1))).unwrap();
    let modified = path.metadata().unwrap().modified().unwrap();
    let file = AllowFile::load(&path, None).unwrap();
    let new = home.path().join("new");
    std::fs::write(&new, format!("{} read\n", key(2))).unwrap();
    let times = std::fs::FileTimes::new().set_modified(modified);
    let opened = std::fs::File::options().write(true).open(&new).unwrap();
    opened.set_times(times).unwrap();
    std::fs::rename(&new, &path).unwrap();
    assert!(file.trusts(&key(2)) && !file.trusts(&key(1)));
}

/// A list that is cut off would silently leave out keys that its owner let in.
#[test]
fn lists__of_too_many_lines_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("list");
    let refused = |error: Error| error.to_string().contains("more than 10000 lines");
    for (lines, fits) in [(MAX_LINES, true), (MAX_LINES + 1, false)] {
        let text = "#\n".repeat(lines);
        assert_eq!(AllowList::parse(&text).is_ok(), fits, "{lines}");
        std::fs::write(&path, &text).unwrap();
        assert_eq!(KnownHosts::load(&path).is_ok(), fits, "{lines}");
        if !fits {
            assert!(AllowList::parse(&text).is_err_and(refused));
            assert!(KnownHosts::load(&path).is_err_and(refused));
        }
    }
}
