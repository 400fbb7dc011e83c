//! Tests forwards to a host that a login reaches.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use nix::sys::signal::Signal;

use crate::lab::{Lab, Running, connect, echo, program};

/// `forward LISTEN TARGET --to me@localhost` by a script in the place of ssh.
fn by_login(lab: &Lab, words: &[&str]) -> Running {
    let script = lab.path("rsh");
    let bin = Path::new(program()).parent().unwrap().display().to_string();
    let text = format!(
        "while [ \"$1\" = -l ] || [ \"$1\" = -p ]; do shift 2; done\nshift\n\
         export SSH_CONNECTION='127.0.0.1 1 127.0.0.1 2' PATH='{bin}':\"$PATH\" ZEROLANE_HOME='{}'\n\
         echo $$ >>'{}'\nexec sh -c \"exec $*\"\n",
        lab.path("there").display(),
        lab.path("pids").display()
    );
    fs::write(&script, text).unwrap();
    let shell = format!("sh {}", script.display());
    let words = [
        &["forward"],
        words,
        &["--to", "me@localhost", "--rsh", &shell],
    ]
    .concat();
    lab.start(lab.zerolane("home", &words))
}

fn pids(lab: &Lab) -> Vec<String> {
    let pids = fs::read_to_string(lab.path("pids")).unwrap_or_default();
    pids.lines().map(str::to_owned).collect()
}

fn runs(pid: &str) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let until = std::time::Instant::now() + crate::lab::PATIENCE;
    while !is_so() {
        assert!(std::time::Instant::now() < until, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn forward__by_a_login_needs_no_keys_and_ends_with_it() {
    let (lab, echo) = (Lab::new(), echo());
    let mut near = by_login(&lab, &["0", &echo]);
    let on = near
        .says("Forwarding ")
        .split(' ')
        .next()
        .unwrap()
        .to_owned();
    let mut stream = connect(&on);
    stream.write_all(b"hello").unwrap();
    stream.read_exact(&mut [0; 5]).unwrap();
    near.signal(Signal::SIGTERM);
    assert_eq!(near.ends(), Some(130));
    until("the other end stays", || {
        pids(&lab).iter().all(|it| !runs(it))
    });
    assert!(!lab.path("there").join("identity").exists());
}

#[test]
fn forward__a_login_that_is_gone_is_made_again() {
    let (lab, echo) = (Lab::new(), echo());
    let mut near = by_login(&lab, &["0", &echo]);
    let on = near
        .says("Forwarding ")
        .split(' ')
        .next()
        .unwrap()
        .to_owned();
    let killed = pids(&lab)[0].parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(killed), Signal::SIGKILL).unwrap();
    near.says(" again.");
    let mut stream = connect(&on);
    stream.write_all(b"hello").unwrap();
    stream.read_exact(&mut [0; 5]).unwrap();
    assert_eq!(pids(&lab).len(), 2);
}
