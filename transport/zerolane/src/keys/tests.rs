//! Tests that files of keys are read and changed safely.

#![allow(non_snake_case)]
use super::*;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use zerolane_lane::{Identity, PublicKey, Trust};

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
    assert_eq!(trust.key_check(), None);
    assert!(trust.trusts(&key(1)));
    let first = HostKeyCheck::First {
        key: key(1),
        saved: true,
    };
    assert_eq!(trust.key_check(), Some(first));
    known.remember("[::1]:2", key(2)).unwrap();

    let known = KnownHosts::load(&path).unwrap();
    assert_eq!(known.key_of("a:1"), Some(key(1)));
    assert_eq!(known.key_of("[::1]:2"), Some(key(2)));
    assert_eq!(known.key_of("b:1"), None);
    assert_eq!(known.key_of("c:1"), None, "our own is not remembered");
    assert!(known.trust("a:1", None).trusts(&key(1)));
    let trust = known.trust("a:1", None);
    assert!(!trust.trusts(&key(2)), "another key");
    let changed = HostKeyCheck::Changed {
        known: key(1),
        presented: key(2),
    };
    assert_eq!(trust.key_check(), Some(changed));
    known.remember("a:1", key(2)).unwrap();
    let known = KnownHosts::load(&path).unwrap();
    assert_eq!(known.key_of("a:1"), Some(key(1)), "never overwritten");
}

/// A program that reconnects must not take another host for the first one.
#[test]
fn host_trust__keeps_the_key_of_the_first_connection() {
    let home = tempfile::tempdir().unwrap();
    let known = KnownHosts::load(&home.path().join("known_hosts")).unwrap();
    for (trust, first) in [
        (known.trust("a:1", None), key(1)),
        (known.trust("b:1", Some(key(3))), key(3)),
        (HostTrust::anyone(), key(1)),
    ] {
        assert!(trust.trusts(&first));
        let key_check = trust.key_check();
        assert!(trust.trusts(&first));
        assert_eq!(trust.key_check(), key_check);
        assert!(!trust.trusts(&key(2)));
        let changed = HostKeyCheck::Changed {
            known: first,
            presented: key(2),
        };
        assert_eq!(trust.key_check(), Some(changed));
        assert!(trust.trusts(&first));
    }
}

#[test]
fn host_trust__answers_others_while_it_waits_for_the_file() {
    use rustix::fs::{FlockOperation, flock};
    use std::sync::{Arc, mpsc::channel};
    use std::time::Duration;
    let home = tempfile::tempdir().unwrap();
    let known = KnownHosts::load(&home.path().join("known_hosts")).unwrap();
    let trust = Arc::new(known.trust("a:1", None));
    // Locks the directory, as another process that changes the file does.
    let lock = std::fs::File::open(home.path()).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let first_contact = |saved| Some(HostKeyCheck::First { key: key(1), saved });
    let first = {
        let trust = Arc::clone(&trust);
        std::thread::spawn(move || trust.trusts(&key(1)))
    };
    let (tell, told) = channel();
    let second = Arc::clone(&trust);
    std::thread::spawn(move || {
        while second.key_check().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = tell.send((second.key_check(), second.trusts(&key(1))));
    });
    let heard = told.recv_timeout(Duration::from_secs(60));
    assert_eq!(heard, Ok((first_contact(false), true)));
    drop(lock);
    assert!(first.join().unwrap());
    assert_eq!(trust.key_check(), first_contact(true));
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
    use zerolane_wire::Rights as Of;
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
        // Other names; a substring of a name, and the whole list as a name, do not match.
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
        // Never more than is offered to everyone.
        for offered in [Of::NONE, Of::READ, Of::WRITE, Of::ATOMIC] {
            assert!(offered.contains(of(line, name, offered)), "{line}");
            assert!(granted.contains(of(line, name, offered)), "{line}");
        }
    }
}

#[test]
fn rights__of_forwarding() {
    use zerolane_wire::Rights as Of;
    let of = |line: &str| {
        let list = AllowList::parse(&format!("{} {line}", key(1))).unwrap();
        list.rights(&key(1)).unwrap().clone()
    };
    let named = of("connect=db:5432,[::1]:22 listen=127.0.0.1:*");
    assert!(named.connect[0].covers("db", 5432) && named.connect[1].covers("::1", 22));
    assert!(named.listen[0].covers("127.0.0.1", 8080));
    assert!(!named.connect.iter().any(|it| it.covers("127.0.0.1", 8080)));
    assert_eq!(
        (named.files(), named.memory("a", Of::ALL)),
        (None, Of::NONE)
    );
    assert_eq!(
        of(&named.to_string()),
        named,
        "the line that `keys add` writes"
    );
    let both = of("read-write below=in connect=*:80");
    assert_eq!((both.files(), both.write), (Some(&b"in"[..]), true));
    for line in ["read", "read-write", "read regions=a"] {
        assert_eq!(
            (of(line).connect, of(line).listen),
            (vec![], vec![]),
            "nothing that is not named"
        );
    }
    assert_eq!((Rights::ALL.connect, Rights::ALL.listen), (vec![], vec![]));
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
        format!("{key} connect="),
        format!("{key} connect=web"),
        format!("{key} connect=web:80,"),
        format!("{key} connect=a:1 connect=b:1"),
        format!("{key} listen=::1:80"),
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
    assert_eq!(file.take_change(), Some(Ok(2)));
    assert_eq!(file.take_change(), None, "told once");
    std::fs::write(
        &path,
        "nonsense that is longer than the line before, surely\n".repeat(2),
    )
    .unwrap();
    assert!(file.trusts(&key(1)), "the last good one is in force");
    assert!(matches!(file.take_change(), Some(Err(why)) if why.starts_with("line 1: ")));
    assert_eq!(file.take_change(), None, "told once");
    std::fs::remove_file(&path).unwrap();
    assert!(!file.trusts(&key(1)) && file.trusts(&key(9)));
    assert_eq!(file.take_change(), Some(Ok(1)));
}

/// Bytes that this thread has read so far, if the kernel counts them.
fn bytes_read() -> Option<u64> {
    let counts = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    let count = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
    count.and_then(|count| count.parse().ok())
}

#[test]
fn allow_file__a_broken_one_is_not_read_again_for_each_peer() {
    const BYTES: usize = 200_000;
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("allowed_keys");
    let file = AllowFile::load(&path, Some(key(9))).unwrap();
    std::fs::write(&path, "nonsense\n".repeat(BYTES / 9)).unwrap();
    assert!(!file.trusts(&key(1)));
    let before = bytes_read();
    for _ in 0..10 {
        assert!(!file.trusts(&key(1)) && file.trusts(&key(9)));
    }
    let read = bytes_read().zip(before).map(|(now, before)| now - before);
    match read {
        Some(read) => assert!(read < BYTES as u64, "{read} bytes were read"),
        None => println!("skipped: the kernel does not count what threads read"),
    }
    assert!(matches!(file.take_change(), Some(Err(_))));
    // The file is read again when it changes.
    std::fs::write(&path, format!("{} read\n", key(1))).unwrap();
    assert!(file.trusts(&key(1)));
    assert_eq!(file.take_change(), Some(Ok(2)));
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

/// A truncated list would silently leave out keys that its owner allowed.
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

/// A truncated text would be lost for good when the list is written again.
#[test]
fn allow_file__too_long_is_an_error_and_stays_as_it_is() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("allowed_keys");
    let last = format!("{} read below=in\n", key(2));
    let comment = format!("# {}\n", "x".repeat(997));
    // One byte too long; truncated at the limit it would be a list of one key.
    let fits = MAX_BYTES as usize - last.len();
    let mut text = format!("{} read\n{}", key(1), comment.repeat(fits / 1000));
    text.push_str(&"#".repeat(fits - text.len()));
    text.push('\n');
    text.push_str(&last);
    for text in [text.clone(), text.clone() + &comment] {
        std::fs::write(&path, &text).unwrap();
        permit(&path, 0o600);
        let loaded = AllowFile::load(&path, None);
        assert!(loaded.is_err(), "a part of it");
        let said = loaded.unwrap_err().to_string();
        assert!(said.contains("longer than 1 MiB"), "{said}");
        assert!(AllowFile::add(&path, &allowed(3, "read", None)).is_err());
        assert!(AllowFile::revoke(&path, &key(1)).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    // At the limit nothing can be added, and the list is usable.
    text.remove(fits - 1);
    std::fs::write(&path, &text).unwrap();
    assert_eq!(text.len() as u64, MAX_BYTES);
    let list = AllowFile::load(&path, None).unwrap().list();
    assert_eq!(list.keys().len(), 2);
    assert!(AllowFile::add(&path, &allowed(3, "read", None)).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

fn allowed(n: u8, line: &str, name: Option<&str>) -> AllowedKey {
    let list = AllowList::parse(&format!("{} {line}", key(n))).unwrap();
    let name = name.map(str::to_owned);
    AllowedKey {
        name,
        ..list.keys()[0].clone()
    }
}

#[test]
fn allow_list__names_and_order_are_those_of_the_lines() {
    let text = format!(
        "# all\n{} read # b, of the lab \n{} read\n{} read #\n",
        key(2),
        key(1),
        key(3)
    );
    let list = AllowList::parse(&text).unwrap();
    assert_eq!(list.name(&key(2)), Some("b, of the lab"));
    assert_eq!((list.name(&key(1)), list.name(&key(3))), (None, None));
    let order: Vec<_> = list.keys().iter().map(|it| it.key).collect();
    assert_eq!(order, [key(2), key(1), key(3)]);
    let own = list.with(key(2), Rights::ALL);
    assert_eq!(own.rights(&key(2)), Some(&Rights::ALL));
    assert_eq!((own.len(), own.name(&key(2))), (3, Some("b, of the lab")));
}

#[test]
fn allow_file__add_and_revoke_leave_other_lines_as_they_are() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("deep/allowed_keys");
    let one = allowed(1, "read", Some("one"));
    assert_eq!(AllowFile::add(&path, &one).unwrap(), None);
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    // Written by hand: with comments, without a final line break, readable by another user.
    let before = format!("# mine\n\n  {}   read   #  one\n{} read", key(1), key(2));
    std::fs::write(&path, &before).unwrap();
    permit(&path, 0o644);
    assert_eq!(AllowFile::add(&path, &one).unwrap(), Some(one.clone()));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before, "the same");

    let three = allowed(3, "read-write below=in/box regions=a,b", None);
    AllowFile::add(&path, &three).unwrap();
    let more = allowed(1, "read fetch", Some("one"));
    assert_eq!(AllowFile::add(&path, &more).unwrap(), Some(one));
    let expected = format!(
        "# mine\n\n{} read fetch # one\n{} read\n{} read-write below=in/box regions=a,b\n",
        key(1),
        key(2),
        key(3)
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    assert_eq!(mode(&path), 0o644);

    assert_eq!(AllowFile::revoke(&path, &key(4)).unwrap(), None);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    assert_eq!(AllowFile::revoke(&path, &key(1)).unwrap(), Some(more));
    let expected = expected.replace(&format!("{} read fetch # one\n", key(1)), "");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    let left = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(left, 1, "nothing beside it");
}

#[test]
fn allow_file__add_through_a_link_changes_what_it_leads_to() {
    let home = tempfile::tempdir().unwrap();
    let (path, link) = (home.path().join("list"), home.path().join("link"));
    std::fs::write(&path, "").unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    AllowFile::add(&link, &allowed(1, "read", None)).unwrap();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    let list = AllowList::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert!(list.rights(&key(1)).is_some());
}

#[test]
fn allow_file__add_refuses_what_no_line_can_say() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("allowed_keys");
    let below = |path: &[u8]| Rights {
        below: Some(path.to_vec()),
        ..Rights::ALL
    };
    let region = |name: &str| Rights {
        regions: Some(vec![name.to_owned()]),
        ..Rights::ALL
    };
    for (rights, name) in [
        (below(b"a b"), None),
        (below(b"a#b"), None),
        (below(b"../up"), None),
        (below(b"\xff"), None),
        (region("a,b"), None),
        (region(""), None),
        (Rights::ALL, Some("one\nzl:")),
        (Rights::ALL, Some(" one")),
        (Rights::ALL, Some("")),
    ] {
        let name = name.map(str::to_owned);
        let new = AllowedKey {
            key: key(1),
            rights,
            name,
        };
        let refused = AllowFile::add(&path, &new);
        assert!(matches!(refused, Err(Error::Unsayable)), "{new:?}");
    }
    assert!(!path.exists());
}

#[test]
fn allow_file__a_broken_one_is_not_changed() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("allowed_keys");
    let broken = format!("{} read\nnonsense\n", key(1));
    std::fs::write(&path, &broken).unwrap();
    let refused = AllowFile::add(&path, &allowed(2, "read", None));
    assert!(matches!(refused, Err(Error::Syntax { line: 2, .. })));
    let refused = AllowFile::revoke(&path, &key(1));
    assert!(matches!(refused, Err(Error::Syntax { line: 2, .. })));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), broken);
}

/// Without a lock, two processes that read the same text would overwrite each other's changes.
#[test]
fn lists__changed_by_many_at_once_lose_nothing() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("allowed_keys");
    let hosts = home.path().join("known_hosts");
    let known = KnownHosts::load(&hosts).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (path, known) = (&path, &known);
            scope.spawn(move || {
                for n in 0..10 {
                    let n = thread * 10 + n;
                    AllowFile::add(path, &allowed(n, "read", None)).unwrap();
                    known.remember(&format!("host{n}:1"), key(n)).unwrap();
                }
            });
        }
    });
    assert_eq!(AllowFile::load(&path, None).unwrap().list().len(), 40);
    assert_eq!(KnownHosts::load(&hosts).unwrap().hosts().len(), 40);
}

#[test]
fn known_hosts__forget_one_port_or_all_of_a_name() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("known_hosts");
    let text = format!(
        "# met\na:1 {}\na:2 {}\nab:1 {}\n[::1]:1 {} # here",
        key(1),
        key(2),
        key(3),
        key(4)
    );
    std::fs::write(&path, &text).unwrap();
    let forget = |host| KnownHosts::forget(&path, host).unwrap();
    assert_eq!(forget("b"), []);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    assert_eq!(forget("a:2"), [("a:2".to_owned(), key(2))]);
    assert_eq!(forget("::1"), [("[::1]:1".to_owned(), key(4))]);
    let rest = format!("# met\na:1 {}\nab:1 {}\n", key(1), key(3));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), rest);
    assert_eq!(forget("a").len(), 1);
    let known = KnownHosts::load(&path).unwrap();
    assert_eq!(known.hosts(), [("ab:1".to_owned(), key(3))]);
}

#[test]
fn allow_file__reload_is_told_of_whether_it_changed_or_not() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("allowed_keys");
    let file = AllowFile::load(&path, Some(key(9))).unwrap();
    assert_eq!(file.take_change(), None);
    for _ in 0..2 {
        file.reload();
        assert_eq!(file.take_change(), Some(Ok(1)));
        assert_eq!(file.take_change(), None, "told once");
    }
    std::fs::write(&path, "nonsense\n").unwrap();
    for _ in 0..2 {
        file.reload();
        assert!(matches!(file.take_change(), Some(Err(_))));
    }
}
