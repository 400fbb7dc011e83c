//! Fuzzes what other processes and hosts say to a pump of sockets: no panic, and what is accepted encodes to the same.

use zerolane_streams::sockets::call::{Answer, Call, Runner};
use zerolane_streams::sockets::program::address;
use zerolane_streams::sockets::question::{Question, Yes};
use zerolane_streams::sockets::rules::Rule;

/// See the first lines of this file.
pub fn run(bytes: &[u8]) {
    let secret = bytes.first_chunk().copied().unwrap_or_default();
    if let Some(call) = Call::read(bytes, &secret) {
        assert_eq!(Call::read(&call.write(&secret), &secret), Some(call));
    }
    if let Some(answer) = Answer::read(bytes) {
        assert_eq!(Answer::read(&answer.write()), Some(answer));
    }
    if let Some(question) = Question::read(bytes) {
        assert_eq!(Question::read(&question.write()), Some(question));
    }
    if let Some(yes) = Yes::read(bytes) {
        assert_eq!(Yes::read(&yes.write()), Some(yes));
    }
    if let Some(it) = address::read(bytes) {
        let (written, len) = address::write(it, it.is_ipv6());
        assert_eq!(address::read(&written[..len]), Some(it));
    }
    if let Some(runner) = Runner::parse(bytes) {
        assert_eq!(Runner::parse(runner.to_string().as_bytes()), Some(runner));
    }
    if let Ok(Ok(rule)) = std::str::from_utf8(bytes).map(str::parse::<Rule>) {
        assert_eq!(rule.to_string().parse(), Ok(rule));
    }
}
