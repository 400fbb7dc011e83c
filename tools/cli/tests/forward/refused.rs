//! Tests what is refused, and with which words.

use std::fs;
use std::io::{ErrorKind, Read};
use std::net::TcpListener;

use crate::lab::{Lab, connect, echo};

/// What a client gets.
fn end_of(on: &str) -> ErrorKind {
    match connect(on).read(&mut [0; 100]) {
        Ok(len) => panic!("{len} bytes"),
        Err(error) => error.kind(),
    }
}

#[test]
fn forward__a_target_that_is_not_named_is_refused_in_words() {
    let (lab, echo) = (Lab::new(), echo());
    let (mut server, peer) = lab.serve(&[]);
    let (mut near, on) = lab.forward("0", &echo, &peer);
    assert_eq!(end_of(&on), ErrorKind::ConnectionReset);
    let words = near.says("this key may not connect to ");
    assert!(words.contains(&format!("needs connect={echo}")), "{words}");
    server.says(": refused");
    let mut back = lab.start(lab.zerolane(
        "home",
        &["forward", "-R", "127.0.0.1:0", &echo, "--to", &peer],
    ));
    assert_eq!(back.ends(), Some(6), "{}", back.said());
    assert!(
        back.said().contains("needs listen=127.0.0.1:0"),
        "{}",
        back.said()
    );
}

#[test]
fn forward__rights_are_by_key_and_follow_the_list() {
    let (lab, echo) = (Lab::new(), echo());
    lab.key("home");
    let key = lab.key("other");
    let list = lab.path("list");
    let words = [
        "keys",
        "add",
        &key,
        "--connect",
        &echo,
        "--allowed",
        list.to_str().unwrap(),
    ];
    assert!(lab.zerolane("home", &words).status().unwrap().success());
    assert!(
        fs::read_to_string(&list)
            .unwrap()
            .contains(&format!("connect={echo}"))
    );
    let (_server, peer) = lab.serve(&["--allowed", list.to_str().unwrap()]);
    let near = |home: &str| {
        let mut it = lab.start(lab.zerolane(home, &["forward", "0", &echo, "--to", &peer]));
        let line = it.says("Forwarding ");
        (it, line.split(' ').next().unwrap().to_owned())
    };
    // The server's own key may connect to the server, and nowhere else.
    let (_own, on) = near("home");
    assert_eq!(end_of(&on), ErrorKind::ConnectionReset);
    let (_near, on) = near("other");
    let mut stream = connect(&on);
    std::io::Write::write_all(&mut stream, b"a").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    fs::write(&list, format!("{key} connect=127.0.0.1:1\n")).unwrap();
    assert_eq!(end_of(&on), ErrorKind::ConnectionReset);
    // A key that is not on the list does not get in at all.
    lab.key("stranger");
    let mut refused = lab.start(lab.zerolane("stranger", &["forward", "0", &echo, "--to", &peer]));
    assert_eq!(refused.ends(), Some(6), "{}", refused.said());
}

#[test]
fn forward__a_target_that_does_not_answer_is_a_reset_with_words() {
    let lab = Lab::new();
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let (_server, peer) = lab.serve(&["--connect", &closed, "--connect", "no-such-host.invalid:1"]);
    let (mut near, on) = lab.forward("0", &closed, &peer);
    assert_eq!(end_of(&on), ErrorKind::ConnectionReset);
    near.says(&format!("cannot connect to {closed}: "));
    let (mut near, on) = lab.forward("0", "no-such-host.invalid:1", &peer);
    assert_eq!(end_of(&on), ErrorKind::ConnectionReset);
    near.says("cannot connect to no-such-host.invalid:1: ");
}

#[test]
fn forward__a_port_that_is_taken_is_said() {
    let (lab, echo) = (Lab::new(), echo());
    let (_server, peer) = lab.serve(&["--accept", "127.0.0.1:*"]);
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    let mut near = lab.start(lab.zerolane("home", &["forward", &taken, &echo, "--to", &peer]));
    assert_eq!(near.ends(), Some(1));
    assert!(
        near.said().contains(&format!(
            "cannot listen on {taken}: another program listens there"
        )),
        "{}",
        near.said()
    );
    let mut back =
        lab.start(lab.zerolane("home", &["forward", "-R", &taken, &echo, "--to", &peer]));
    assert_eq!(back.ends(), Some(1));
    let words = format!("the other end does not listen on {taken}: another program listens there");
    assert!(back.said().contains(&words), "{}", back.said());
    // A path with something else.
    let file = lab.path("file");
    fs::write(&file, "mine").unwrap();
    let mut near = lab.start(lab.zerolane(
        "home",
        &["forward", file.to_str().unwrap(), &echo, "--to", &peer],
    ));
    assert_eq!(near.ends(), Some(1), "{}", near.said());
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn forward__wrong_words_are_usage() {
    let lab = Lab::new();
    for words in [
        &["forward", "--to", "x"][..],
        &["forward", "80", "--to", "x"],
        &["forward", "80", "db:80"],
        &["forward", "80", "db", "--to", "x"],
        &["forward", "x", "db:80", "--to", "x"],
        &["forward", "-R", "80", "socks", "--to", "x"],
        &["forward", "80", "db:80", "--to", "me@x", "--plain"],
        &["forward", "serve", "--connect", "db"],
        &["forward", "serve", "--stdio", "--connect", "db:1"],
    ] {
        let said = lab.zerolane("home", words).output().unwrap();
        assert_eq!(said.status.code(), Some(2), "{words:?}: {said:?}");
    }
}
