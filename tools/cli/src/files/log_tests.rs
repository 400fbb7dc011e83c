//! Tests the format of log lines, and their limits.
#![allow(non_snake_case)]
use super::*;
use zerolane::security::Identity;

fn peer() -> Peer {
    Peer {
        connection: 1,
        address: "192.0.2.7:4711".parse().unwrap(),
        key: Some(Identity::from_secret([7; 32]).public()),
        name: Some("Ada\x1b[2J".into()),
    }
}

#[test]
fn text__says_when_who_and_what() {
    let line = Line {
        time: "2026-11-23T12:01:37.123Z".into(),
        paths: vec!["notes".into(), "a b".into()],
        ..Line::of("read", &peer())
    };
    let key = peer().key.unwrap();
    let expected = format!(
        "2026-11-23T12:01:37.123Z 192.0.2.7:4711 {key} (Ada\\x1b[2J) read: \"notes\" \"a b\""
    );
    assert_eq!(line.text(), expected);
    let line = Line {
        files: Some(2),
        bytes: Some(3000),
        failed: Some(0),
        seconds: Some(0.25),
        ..Line::new("done")
    };
    assert_eq!(line.text(), " done: 2 files, 3000 bytes, 0 failed, 0.250 s");
    let line = Line::new("refused").because("not on the list");
    assert_eq!(line.text(), " refused: not on the list");
}

#[test]
fn json__has_what_there_is_and_no_more() {
    let line = Line::of("read", &peer()).because("it");
    let json = serde_json::to_value(&line).unwrap();
    let fields: Vec<_> = json.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["event", "key", "name", "peer", "reason", "time"]);
    assert_eq!(json["name"], "Ada\\x1b[2J");
}

#[test]
fn ended__forgets_the_connection() {
    let log = Log::new(Format::Json);
    let peer = peer();
    log.requested(&peer, Verb::List, &[b"".to_vec()]);
    assert_eq!(log.since().len(), 1);
    log.ended(&peer, &Ok(None), &Account::default());
    assert!(log.since().is_empty());
}

#[test]
fn request__of_many_paths_is_a_line_of_bounded_length() {
    let paths = vec![vec![b'\n'; 10]; 6000];
    let line = Line::request(&peer(), Verb::List, &paths);
    let text = line.text();
    assert!(text.len() < 2 * PATHS_BYTES, "{} bytes", text.len());
    let named = line.paths.len();
    assert!(named > 10);
    assert!(text.ends_with(&format!(" {} more", 6000 - named)), "{text}");
    let few = Line::request(&peer(), Verb::List, &paths[..2]);
    assert_eq!((few.paths.len(), few.count), (2, None));
}
