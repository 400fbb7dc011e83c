//! Tests the messages of a copy, and its output on terminals.

use std::fs;
use std::process::{Command, Stdio};

use super::lab::*;

#[test]
fn cp__says_what_it_did_off_a_terminal_too() {
    let lab = Lab::new(&[]);
    fs::write(lab.local("a"), content(1, 2048)).unwrap();
    let (code, out, err) = run(lab.put(&[], "a", "a"));
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(
        err.starts_with("1 file, 2.00 KiB, ") && err.ends_with("/s, verified\n"),
        "{err:?}"
    );
    assert_eq!(err.lines().count(), 1);
    let quiet = run(lab.put(&["-q"], "a", "a"));
    assert_eq!(quiet, (0, String::new(), String::new()));
    let (_, _, err) = run(lab.put(&["--json"], "a", "a"));
    assert_eq!(err, "");
}

#[test]
fn cp__names_each_file_if_asked_to() {
    let lab = Lab::new(&[]);
    fs::create_dir(lab.share("d")).unwrap();
    fs::write(lab.share("d/one"), b"1").unwrap();
    fs::write(lab.share("d/two\n"), content(1, 3 * MIB)).unwrap();
    let (code, _, err) = run(lab.get(&["-r", "-v"], "d", "d"));
    assert_eq!(code, 0);
    let mut lines: Vec<_> = err.lines().collect();
    assert!(lines.pop().unwrap().starts_with("2 files, "), "{err:?}");
    lines.sort_unstable();
    assert_eq!(lines, ["d/one, 1 B", "d/two\\n, 3.00 MiB"]);
    let (_, out, err) = run(lab.get(&["-r", "-v", "--json"], "d", "e"));
    assert_eq!(
        (err.as_str(), out.matches("\"started\"").count()),
        ("", 2),
        "{out}"
    );
    fail(lab.get(&["-q", "-v"], "d", "f"), 2, "cannot be used with");
}

/// A command that runs `command` on a terminal, with this process's standard input as the keyboard.
pub(crate) fn of_terminal(command: &Command) -> Command {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let mut script = Command::new("script");
    script
        .args(["-qec", &words.join(" "), "/dev/null"])
        .env("ZEROLANE_HOME", HOME);
    script
}

/// Runs a command on a terminal of this kind. Returns its output.
fn on_terminal(command: &Command, settings: &[(&str, &str)]) -> String {
    let mut script = of_terminal(command);
    script.stdin(Stdio::null());
    // Other variables that decide on colours; with CI set, even a dumb terminal has them.
    for other in ["NO_COLOR", "CI", "CLICOLOR", "CLICOLOR_FORCE"] {
        script.env_remove(other);
    }
    script.envs(settings.iter().copied());
    let output = script.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn terminal__gets_no_more_than_it_can_show() {
    let lab = Lab::new(&[]);
    fs::write(lab.local("a"), content(1, 2048)).unwrap();
    let copy = lab.put(&[], "a", "a");
    let said = on_terminal(&copy, &[("TERM", "dumb")]);
    assert!(
        !said.contains('\x1b') && said.starts_with("1 file, "),
        "{said:?}"
    );
    // A capable terminal gets a bar.
    let said = on_terminal(&copy, &[("TERM", "xterm")]);
    assert!(
        said.contains('\x1b') && said.contains("1 file, "),
        "{said:?}"
    );

    let mut help = zerolane();
    help.args(["cp", "--help"]);
    assert!(on_terminal(&help, &[("TERM", "xterm")]).contains("\x1b["));
    for settings in [
        &[("TERM", "dumb")][..],
        &[("TERM", "xterm"), ("NO_COLOR", "1")],
    ] {
        let said = on_terminal(&help, settings);
        assert!(!said.contains('\x1b'), "{settings:?}: {said:?}");
    }
}

#[test]
fn help__is_as_wide_as_COLUMNS_says() {
    let widest = |columns: &str| {
        let mut help = zerolane();
        help.args(["cp", "--help"]).env("COLUMNS", columns);
        succeed(help)
            .lines()
            .map(|line| line.chars().count())
            .max()
            .unwrap()
    };
    assert!(widest("60") <= 60 && widest("200") > 100);
}
