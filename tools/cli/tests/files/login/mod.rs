//! Tests `USER@HOST:PATH`, where a login starts the other end.

mod between;
mod ends;
mod faults;
mod script;
mod sshd;

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use super::lab::*;
pub(crate) use script::Login;

fn same(login: &Login, a: &str, b: &str) {
    let paths = [a, b].map(|path| login.path(path));
    let differ = Command::new("diff").arg("-r").args(paths).output();
    let differ = differ.unwrap();
    assert!(differ.status.success(), "{differ:?}");
}

fn tree(login: &Login, at: &str) {
    let directory = login.path(at);
    fs::create_dir_all(directory.join("deep/er")).unwrap();
    for file in 0..40 {
        let name = format!("deep/f{file}");
        fs::write(directory.join(name), content(file, 3000 * file as usize)).unwrap();
    }
    fs::write(directory.join("large"), content(99, 5 * MIB)).unwrap();
    symlink("large", directory.join("link")).unwrap();
}

#[test]
fn cp__both_ways_from_home_and_by_absolute_paths() {
    let login = Login::new();
    tree(&login, "local/tree");
    let absolute = login.path("home/absolute").display().to_string();
    for (there, at) in [
        ("new", "home/new"),
        ("~/tilde", "home/tilde"),
        (&*absolute, "home/absolute"),
        ("../beside", "beside"),
    ] {
        let there = login.there(there);
        succeed(login.zerolane(&["cp", "-r", "local/tree", &there]));
        same(&login, "local/tree", at);
        let back = format!("local/back-{}", at.replace('/', "-"));
        succeed(login.zerolane(&["cp", "-r", &there, &back]));
        same(&login, "local/tree", &back);
    }
    // The command that it ran on the host contains no key and no path.
    let expected = "-l|me|localhost|zerolane|serve|--stdio|";
    let ran = fs::read_to_string(login.path("ran")).unwrap();
    assert!(
        ran.lines().count() == 8 && ran.lines().all(|it| it == expected),
        "{ran}"
    );
    // Neither end stored a key.
    assert_eq!(names(&login.path("keys")), [""; 0]);
    login.all_ended();
}

#[test]
fn cp__without_a_user_goes_over_a_remote_shell_that_is_named() {
    let login = Login::new();
    fs::write(login.path("home/a"), b"theirs").unwrap();
    succeed(login.zerolane(&["cp", "localhost:a", "local/b"]));
    assert_eq!(fs::read(login.path("local/b")).unwrap(), b"theirs");
    let ran = fs::read_to_string(login.path("ran")).unwrap();
    assert_eq!(ran, "localhost|zerolane|serve|--stdio|\n");
    // The variable names the shell; with a user and a port of ssh.
    let mut command = login.without_rsh(&["cp", "me@localhost:2222:a", "local/c"]);
    command.env("ZEROLANE_RSH", login.shell());
    succeed(command);
    let ran = fs::read_to_string(login.path("ran")).unwrap();
    assert!(ran.contains("\n-l|me|-p|2222|localhost|"), "{ran}");
}

#[test]
fn cp__links_are_those_of_the_login() {
    let login = Login::new();
    fs::create_dir(login.path("home/real")).unwrap();
    symlink("real", login.path("home/link")).unwrap();
    fs::write(login.path("home/real/old"), b"old").unwrap();
    symlink("real/old", login.path("home/to-file")).unwrap();
    symlink("nothing", login.path("home/to-nothing")).unwrap();
    fs::write(login.path("local/a"), b"new").unwrap();
    // Through a link, into a directory that a link points to, and over the file that a link points to.
    succeed(login.zerolane(&["cp", "local/a", &login.there("link/by-path")]));
    succeed(login.zerolane(&["cp", "local/a", &login.there("link")]));
    succeed(login.zerolane(&["cp", "local/a", &login.there("to-file")]));
    for name in ["by-path", "a", "old"] {
        assert_eq!(
            fs::read(login.path("home/real").join(name)).unwrap(),
            b"new"
        );
    }
    assert!(login.path("home/to-file").is_symlink());
    let nowhere = login.zerolane(&["cp", "local/a", &login.there("to-nothing")]);
    fail(nowhere, 1, "symbolic link to nothing");
    let device = login.zerolane(&["cp", "local/a", &login.there("/dev/null")]);
    fail(device, 1, "neither a file nor a directory");
}

#[test]
fn sync_and_ls__over_a_remote_shell() {
    let login = Login::new();
    tree(&login, "local/tree");
    let there = login.there("copy");
    succeed(login.zerolane(&["sync", "local/tree", &there]));
    same(&login, "local/tree", "home/copy");
    fs::write(login.path("home/copy/more"), b"x").unwrap();
    fs::write(login.path("local/tree/large"), b"small by now").unwrap();
    let (code, _, err) = run(login.zerolane(&["sync", "--delete", "local/tree", &there]));
    assert!(
        code == 0 && err.contains(", 1 deleted, 0 failed"),
        "{code} {err}"
    );
    same(&login, "local/tree", "home/copy");
    succeed(login.zerolane(&["sync", &there, "local/again"]));
    same(&login, "local/tree", "local/again");
    let listed = succeed(login.zerolane(&["ls", &there]));
    assert_eq!(listed, "deep\nlarge\nlink\n");
    login.all_ended();
}

#[test]
fn sync__backups_over_a_remote_shell_go_where_the_login_may() {
    let login = Login::new();
    fs::create_dir(login.path("local/tree")).unwrap();
    fs::create_dir_all(login.path("elsewhere/t")).unwrap();
    symlink("../elsewhere/t", login.path("home/t")).unwrap();
    let absolute = login.path("absolute/new").display().to_string();
    // Relative to DST, which is a link: the parent is that of the link's target.
    for (directory, at) in [("../old", "elsewhere/old"), (&*absolute, "absolute/new")] {
        fs::write(login.path("home/t/extra"), directory).unwrap();
        let directory = format!("--backup-dir={directory}");
        let options = ["--delete", "--allow-empty-source", &directory];
        let paths = ["local/tree", &login.there("t")];
        succeed(login.zerolane(&[&["sync"][..], &options, &paths].concat()));
        assert!(login.path(at).join("extra").exists());
        assert!(!login.path("home/t/extra").exists());
    }
    login.all_ended();
}

#[test]
fn sync__link_dest_over_a_remote_shell() {
    let login = Login::new();
    tree(&login, "local/tree");
    let absolute = login.path("home/1").display().to_string();
    succeed(login.zerolane(&["sync", "local/tree", &login.there("1")]));
    for (directory, to) in [("../1", "2"), (&*absolute, "3")] {
        let option = format!("--link-dest={directory}");
        let there = login.there(to);
        let (code, _, err) = run(login.zerolane(&["sync", &option, "local/tree", &there]));
        assert!(code == 0 && err.contains("; 41 linked"), "{code} {err}");
        same(&login, "local/tree", &format!("home/{to}"));
    }
    login.all_ended();
}

#[test]
fn patterns_rm_mkdir_mv__over_a_remote_shell_reach_what_the_login_does() {
    let login = Login::new();
    let absolute = |path: &str| login.there(&login.path(path).display().to_string());
    succeed(login.zerolane(&[
        "mkdir",
        "-p",
        &absolute("beside/new/er"),
        &login.there("in/a"),
    ]));
    assert!(login.path("beside/new/er").is_dir() && login.path("home/in/a").is_dir());
    succeed(login.zerolane(&["mkdir", "-p", &login.there("../up/er")]));
    symlink("../beside", login.path("home/link")).unwrap();
    for name in ["a.gz", "b.gz", "c"] {
        fs::write(login.path("beside").join(name), name).unwrap();
    }
    // By an absolute path, upwards, and through a link.
    for (at, there) in [
        ("local/1", absolute("beside/*.gz")),
        ("local/2", login.there("../bes?de/[ab].gz")),
        ("local/3", login.there("link/*.gz")),
        ("local/4", login.there("l*/*.gz")),
    ] {
        fs::create_dir(login.path(at)).unwrap();
        succeed(login.zerolane(&["cp", &there, at]));
        assert_eq!(names(&login.path(at)), ["a.gz", "b.gz"], "{there}");
    }
    let listed = succeed(login.zerolane(&["ls", &login.there("../beside/*.gz")]));
    assert_eq!(listed, "../beside/a.gz\n../beside/b.gz\n");
    let top = login.path("beside").display().to_string();
    let listed = succeed(login.zerolane(&["ls", &absolute("beside/c*")]));
    assert_eq!(listed, format!("{top}/c\n"));
    succeed(login.zerolane(&["mv", &absolute("beside/c"), &login.there("in/d")]));
    assert_eq!(fs::read(login.path("home/in/d")).unwrap(), b"c");
    succeed(login.zerolane(&["mv", &login.there("in/d"), &login.there("link")]));
    assert_eq!(fs::read(login.path("beside/d")).unwrap(), b"c");
    // A link is removed, not its target. The home directory and paths without a name are refused.
    succeed(login.zerolane(&["rm", "-r", &login.there("link")]));
    succeed(login.zerolane(&["rm", &absolute("beside/*.gz")]));
    assert_eq!(names(&login.path("beside")), ["d", "new"]);
    for nameless in ["", ".", "..", "/", "in/.."] {
        let remove = login.zerolane(&["rm", "-r", "-f", &login.there(nameless)]);
        fail(remove, 1, "is the served directory itself");
    }
    succeed(login.zerolane(&["rm", "-r", &absolute("beside"), &login.there("../up")]));
    assert!(!login.path("beside").exists() && !login.path("up").exists());
    assert_eq!(names(&login.path("home/in")), ["a"]);
    login.all_ended();
}

#[test]
fn serve__stdio_with_a_directory_keeps_to_it() {
    // Like a forced command in ssh's authorized_keys.
    let login = Login::with("exec zerolane serve --stdio --read-only inside");
    fs::create_dir(login.path("home/inside")).unwrap();
    fs::write(login.path("home/inside/a"), b"a").unwrap();
    fs::write(login.path("home/secret"), b"s").unwrap();
    succeed(login.zerolane(&["cp", &login.there("a"), "local/a"]));
    for outside in [
        "../secret",
        &login.path("home/secret").display().to_string(),
    ] {
        let get = login.zerolane(&["cp", &login.there(outside), "local/b"]);
        fail(get, 1, "outside the served directory");
    }
    let put = login.zerolane(&["cp", "local/a", &login.there("b")]);
    fail(put, 1, "read-only");
}

#[test]
fn timeout__is_told_to_the_other_end() {
    let login = Login::with("read call; echo \"$call\" >>\"$base/calls\"; exit 255");
    let config = login.path("config");
    fs::write(&config, "[client]\ntimeout = 9\n").unwrap();
    let none = std::path::PathBuf::from("/dev/null");
    for verb in ["cp", "sync"] {
        for (options, config, seconds) in [
            (&[][..], &none, 300),
            (&["--timeout", "7"], &none, 7),
            (&[], &config, 9),
            (&["--timeout", "7"], &config, 7),
        ] {
            let arguments = [&[verb], options, &["me@localhost:a", "local"]].concat();
            let mut command = login.zerolane(&arguments);
            command.env("ZEROLANE_CONFIG", config);
            fail(command, 3, "no login");
            let calls = fs::read_to_string(login.path("calls")).unwrap();
            let told = format!(" {seconds} -");
            assert!(
                calls.lines().last().unwrap().ends_with(&told),
                "{verb}: {calls}"
            );
        }
    }
}
