//! Tests which clients a server lets in, and which servers a client trusts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use super::lab::*;

#[test]
fn keys__a_client_not_on_the_list_is_told_what_to_do() {
    let (lab, home) = server_of_another_user(&[]);
    fs::write(lab.share("a"), b"theirs").unwrap();
    let own = own_key();
    let hint = format!("'{own} read'");
    let (code, _, err) = run(lab.get(&[], "a", ""));
    assert_eq!(code, 6, "{err}");
    assert!(err.contains(&hint) && !err.contains("no answer"), "{err}");

    // The owner adds the key while the server runs.
    let list = home.path().join("allowed_keys");
    fs::write(&list, format!("{own} read # a friend\n")).unwrap();
    succeed(lab.get(&[], "a", ""));
    assert_eq!(fs::read(lab.local("a")).unwrap(), b"theirs");
    fail(lab.put(&[], "a", "b"), 1, "this key may only read there");

    fs::create_dir(lab.share("in")).unwrap();
    fs::write(&list, format!("{own} read-write below=in\n")).unwrap();
    succeed(lab.put(&[], "a", "b"));
    assert_eq!(names(&lab.share("in")), ["b"]);
    fail(lab.get(&[], "a", "c"), 1, "no such file");
}

#[test]
fn keys__where_none_can_be_kept_is_one_for_this_time() {
    let (lab, home) = server_of_another_user(&["--anyone"]);
    fs::write(lab.local("a"), b"a").unwrap();
    let mut id = zerolane();
    id.arg("id").env("ZEROLANE_HOME", home.path());
    let key = succeed(id);
    // No user can make a directory there.
    const NOWHERE: &str = "/proc/zerolane";
    let server = ["--server-key", key.trim()];
    for (options, says) in [(&server[..], None), (&[], Some("cannot be remembered"))] {
        let mut put = lab.put(options, "a", "");
        put.env("ZEROLANE_HOME", NOWHERE);
        let (code, _, err) = run(put);
        assert_eq!(code, 0, "{err}");
        assert_eq!(err.matches("A key for this time only").count(), 1, "{err}");
        assert_eq!(err.matches(NOWHERE).count(), 1, "{err}");
        assert!(says.is_none_or(|says| err.contains(says)), "{err}");
        fs::remove_file(lab.share("a")).unwrap();
    }
    // A key file named by the user must be usable.
    let file = format!("{NOWHERE}/identity");
    let (code, _, err) = run(lab.put(&["--identity", &file], "a", ""));
    assert_eq!((code, err.matches(NOWHERE).count()), (1, 1), "{err}");
    // So must an existing one, which is not replaced.
    let broken = tempfile::tempdir().unwrap();
    fs::write(broken.path().join("identity"), b"x").unwrap();
    fs::set_permissions(
        broken.path().join("identity"),
        fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    let mut put = lab.put(&server, "a", "");
    put.env("ZEROLANE_HOME", broken.path());
    let (code, _, err) = run(put);
    let named = err.matches(&*broken.path().to_string_lossy()).count();
    assert_eq!((code, named), (1, 1), "{err}");
}

#[test]
fn keys__a_server_is_remembered_and_another_in_its_place_refused() {
    let client = tempfile::tempdir().unwrap();
    let (mut lab, _home) = server_of_another_user(&["--anyone"]);
    let port = lab.address.clone();
    let ls = |lab: &Lab| {
        let mut command = zerolane();
        command.env("ZEROLANE_HOME", client.path());
        command.arg("ls").arg(lab.there(""));
        command
    };
    let (code, _, err) = run(ls(&lab));
    assert!(code == 0 && err.contains("First contact with"), "{err}");
    assert_eq!(succeed(ls(&lab)), "", "known by now");

    // A server with another key takes the address.
    lab.server = None;
    let other = tempfile::tempdir().unwrap();
    let mut program = zerolane();
    program.env("ZEROLANE_HOME", other.path());
    lab.start(program, &["--anyone"], &port);
    let (code, _, err) = run(ls(&lab));
    assert_eq!(code, 7, "{err}");
    assert!(err.contains("IS NOT WHO IT WAS"), "{err}");
    // The command line named the key, so no file is to blame.
    let mut named = ls(&lab);
    named.args(["--server-key", &own_key()]);
    let (code, _, err) = run(named);
    assert_eq!(code, 7, "{err}");
    assert!(err.contains("--server-key names"), "{err}");
    assert!(!err.contains("known_hosts"), "{err}");
}

#[test]
fn plain__only_if_both_say_so_and_loudly() {
    let mut lab = Lab::new(&[]);
    fs::write(lab.local("a"), b"x").unwrap();
    let (code, _, err) = run(lab.put(&["--plain"], "a", ""));
    assert_eq!(code, 3, "{err}");
    assert!(
        err.contains("refuses connections without protection"),
        "{err}"
    );
    lab.server = None;
    let mut plain = zerolane()
        .args(["serve", "--plain", "--listen", "127.0.0.1:0"])
        .arg(lab.share(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = BufReader::new(plain.stdout.take().unwrap());
    lab.server = Some(Running(plain));
    let said: Vec<String> = out.lines().take(3).map(Result::unwrap).collect();
    assert!(said[1].contains("WARNING: plain"), "{said:?}");
    let address = said[0].split(" on ").nth(1).unwrap();
    lab.address = address.split(' ').next().unwrap().to_owned();
    let (code, _, err) = run(lab.put(&["--plain"], "a", ""));
    assert!(code == 0 && err.contains("WARNING: plain"), "{err}");
    let (code, _, err) = run(lab.put(&[], "a", ""));
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("both ends must ask for plain"), "{err}");
}

#[test]
fn authenticated__only_if_both_say_so() {
    let lab = Lab::new(&["--authenticated"]);
    fs::write(lab.local("a"), b"x").unwrap();
    let (code, _, err) = run(lab.put(&[], "a", ""));
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("both must ask for the same"), "{err}");
    let (code, _, err) = run(lab.put(&["--authenticated"], "a", ""));
    assert!(code == 0 && err.contains("Not encrypted"), "{err}");
    assert_eq!(fs::read(lab.share("a")).unwrap(), b"x");
}

#[test]
fn keys__made_once_and_never_overwritten() {
    let home = tempfile::tempdir().unwrap();
    let command = |name: &str| {
        let mut command = zerolane();
        command.env("ZEROLANE_HOME", home.path()).arg(name);
        command
    };
    fail(command("id"), 1, "no key in");
    let (code, made, _) = run(command("keygen"));
    assert_eq!(code, 0);
    assert_eq!(succeed(command("id")), made);
    fail(command("keygen"), 1, "already exists");
    assert_eq!(succeed(command("id")), made);
}

#[test]
fn keys__that_may_less_are_told_what() {
    let (lab, home) = server_of_another_user(&[]);
    fs::write(lab.local("a"), b"a").unwrap();
    let own = own_key();
    let list = home.path().join("allowed_keys");
    let allow = |rights: &str| fs::write(&list, format!("{own} {rights}\n")).unwrap();
    for (rights, exit, words) in [
        ("read", 1, "this key may only read there"),
        ("read-write below=missing", 6, "its owner can create it"),
    ] {
        allow(rights);
        eventually(words, || {
            let (code, _, err) = run(lab.put(&[], "a", ""));
            (code == exit && err.contains(words) && !err.contains("server is read-only"))
                .then_some(())
        });
    }
}

#[test]
fn keys__a_broken_identity_is_named() {
    let lab = Lab::new(&[]);
    let home = tempfile::tempdir().unwrap();
    let identity = home.path().join("identity");
    fs::write(&identity, "nonsense\n").unwrap();
    fs::set_permissions(&identity, fs::Permissions::from_mode(0o600)).unwrap();
    let mut ls = zerolane();
    ls.env("ZEROLANE_HOME", home.path())
        .arg("ls")
        .arg(lab.there(""));
    fail(ls, 1, &identity.display().to_string());
}

#[test]
fn serve__an_address_in_use_is_named() {
    let lab = Lab::new(&[]);
    let mut second = zerolane();
    second
        .arg("serve")
        .arg(lab.share(""))
        .args(["--listen", &lab.address]);
    let words = format!("cannot listen on {}: Address already in use", lab.address);
    fail(second, 1, &words);
}
