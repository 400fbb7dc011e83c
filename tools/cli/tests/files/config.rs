//! Tests configuration files: what they set, what overrides them, and which lines are errors.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::lab::*;

/// A command with only this configuration.
fn with(lab: &Lab, config: &str, arguments: &[&str]) -> Command {
    let file = config_file(lab);
    fs::write(&file, config).unwrap();
    let mut command = zerolane();
    command.env("ZEROLANE_CONFIG", file).args(arguments);
    command
}

fn config_file(lab: &Lab) -> PathBuf {
    lab.base.path().join("config.toml")
}

#[test]
fn config__a_host_by_another_name_and_its_key() {
    let (lab, home) = server_of_another_user(&["--anyone"]);
    fs::write(lab.share("a"), b"theirs").unwrap();
    let (name, port) = lab.address.split_once(':').unwrap();
    let known = tempfile::tempdir().unwrap();
    let of = |key: &str| {
        let config = format!("[host.far]\nname = '{name}'\nport = {port}\nserver-key = '{key}'\n");
        let mut ls = with(&lab, &config, &["ls", "far:"]);
        ls.env("ZEROLANE_HOME", known.path());
        ls
    };
    fail(of(&own_key()), 7, "--server-key names");
    let mut id = zerolane();
    id.env("ZEROLANE_HOME", home.path()).arg("id");
    let key = succeed(id);
    let listed = succeed(of(key.trim()));
    assert_eq!(listed, "a\n");
    // The configuration names the key, so no server is remembered.
    assert_eq!(names(known.path()), ["identity"]);
}

#[test]
fn config__the_command_line_wins() {
    let mut lab = Lab::new(&[]);
    // The address of localhost.
    lab.start(zerolane(), &[], "127.0.0.1:0");
    fs::write(lab.share("a"), b"theirs").unwrap();
    let (_, port) = lab.address.split_once(':').unwrap();
    let config = "[host.localhost]\nname = '127.0.0.1'\nport = 1\n";
    let there = format!("localhost:{port}:");
    let listed = succeed(with(&lab, config, &["ls", &there]));
    assert_eq!(listed, "a\n");
    // The section of another host does not count.
    let config = "[host.other]\nuser = 'me'\n[client]\nrsh = 'no-such-shell'\n";
    succeed(with(&lab, config, &["ls", &there]));
}

#[test]
fn config__a_host_over_a_remote_shell() {
    let lab = Lab::new(&[]);
    let out = lab.base.path().join("out").display().to_string();
    let shell = format!("[client]\nrsh = \"sh -c 'echo \\\"$0 $*\\\" >{out}; exit 255'\"\n");
    let ran = |config: &str, location: &str| {
        let _ = fs::remove_file(&out);
        let (code, _, err) = run(with(&lab, &format!("{shell}{config}"), &["ls", location]));
        assert_eq!(code, 3, "{err}");
        fs::read_to_string(&out).unwrap()
    };
    let program = "zerolane serve --stdio\n";
    assert_eq!(ran("", "me@far:"), format!("-l me far {program}"));
    let host =
        "[host.far]\nname = '192.0.2.7'\nuser = 'you'\nport = 2222\nremote-program = '/opt/zl'\n";
    let program = "/opt/zl serve --stdio\n";
    assert_eq!(
        ran(host, "far:"),
        format!("-l you -p 2222 192.0.2.7 {program}")
    );
    assert_eq!(
        ran(host, "me@far:22:"),
        format!("-l me -p 22 192.0.2.7 {program}")
    );
}

#[test]
fn config__that_is_wrong_stops_everything() {
    let lab = Lab::new(&[]);
    let there = lab.there("");
    let file = config_file(&lab).display().to_string();
    let share = lab.share("").display().to_string();
    for arguments in [&["ls", &*there][..], &["serve", &share], &["config"]] {
        let wrong = || with(&lab, "[client]\n\ntimout = 1\n", arguments);
        fail(wrong(), 2, &file);
        fail(
            wrong(),
            2,
            "line 3: [client] has no \"timout\": is \"timeout\" meant?",
        );
    }
    let missing = with(&lab, "", &["ls", &there]);
    fs::remove_file(config_file(&lab)).unwrap();
    fail(missing, 2, "No such file");
}

#[test]
fn config__of_serve() {
    let lab = Lab::new(&[]);
    fs::write(lab.local("a"), b"a").unwrap();
    let list = lab.base.path().join("list");
    fs::write(&list, format!("{} read-write\n", own_key())).unwrap();
    let config = format!(
        "[serve]\nlisten = '127.0.0.1:0'\nread-only = true\nlog = 'json'\nallowed = '{}'\n",
        list.display()
    );
    for (options, words) in [
        (&[][..], "for reading."),
        (&["--read-only=false"], "and writing."),
    ] {
        let share = lab.share("").display().to_string();
        let arguments = [&["serve", &*share], options].concat();
        let mut serve = with(&lab, &config, &arguments);
        let log = lab.base.path().join("log");
        serve
            .stdout(fs::File::create(&log).unwrap())
            .stderr(Stdio::null());
        let _serving = Running(serve.spawn().unwrap());
        let said = eventually("it serves", || {
            let said = fs::read_to_string(&log).unwrap();
            said.contains("Who may connect").then_some(said)
        });
        assert!(
            said.contains(words) && said.contains(" on 127.0.0.1:"),
            "{said}"
        );
        assert!(said.contains(&list.display().to_string()), "{said}");
    }
}

#[test]
fn config__says_what_holds_and_where_from() {
    let lab = Lab::new(&[]);
    let file = config_file(&lab).display().to_string();
    let config = "[client]\ntimeout = 60\n\n[host.far]\nport = 7\n";
    let said = succeed(with(&lab, config, &["config"]));
    for line in [
        format!("# {file}\n"),
        "[client]\nrsh = \"ssh\"  # default\n".to_owned(),
        format!("timeout = 60  # {file}:2\n"),
        format!("[host.far]\nport = 7  # {file}:5\n"),
        "listen = \"127.0.0.1:9181\"  # default\n".to_owned(),
        "# metrics is not set\n".to_owned(),
    ] {
        assert!(said.contains(&line), "{said}");
    }
    let said = succeed(with(&lab, config, &["config", "far"]));
    for line in [
        "[host.far]\n".to_owned(),
        format!("port = 7  # {file}:5\n"),
        format!("timeout = 60  # {file}:2\n"),
    ] {
        assert!(said.contains(&line), "{said}");
    }
    assert!(!said.contains("[serve]"), "{said}");
    // The output is a valid configuration.
    succeed(with(&lab, &said, &["config"]));
}

#[test]
fn config__is_beside_the_users_keys() {
    let lab = Lab::new(&[]);
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("config.toml");
    fs::write(&file, "[host.far]\ntimeout = 7\n").unwrap();
    let mut config = with(&lab, "", &["config", "far"]);
    config
        .env_remove("ZEROLANE_CONFIG")
        .env("ZEROLANE_HOME", home.path());
    let said = succeed(config);
    assert!(
        said.contains(&format!("timeout = 7  # {}:2\n", file.display())),
        "{said}"
    );
    assert!(said.contains("# /etc/zerolane/config.toml"), "{said}");
}
