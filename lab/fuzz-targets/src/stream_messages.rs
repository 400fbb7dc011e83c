//! Fuzzes what a peer of streams sends, each message behind its length, and what streams and SOCKS5 clients ask for: no
//! panic, no more payload kept than was granted, and everything that this end answers can be parsed.

use std::time::Instant;
use zerolane_streams::engine::{Engine, Event, Fill, Role};
use zerolane_streams::forward::{Negotiation, Request};
use zerolane_streams::limits::{EARLY_WINDOW, INITIAL_WINDOW, MAX_STREAMS};
use zerolane_streams::message::{Message, ResetCode};

/// Does with streams what a program may do, as `choice` says.
fn use_streams(engine: &mut Engine, choice: u8) {
    while let Some(event) = engine.next_event() {
        match event {
            Event::Opened(id) => {
                engine.accept(id);
                let _ = engine.fill(id, |place| Ok(place.len().min(usize::from(choice) * 100)));
            }
            Event::Readable(id) => {
                let len = engine.readable(id).len();
                assert!(
                    len as u64 <= INITIAL_WINDOW + EARLY_WINDOW,
                    "more than was granted"
                );
                engine.consume(id, len / (1 + usize::from(choice % 3)));
                if engine.is_over(id) {
                    engine.release(id);
                }
            }
            Event::Reset(id) => engine.release(id),
            Event::Accepted(id) | Event::Writable(id) => match choice % 4 {
                0 => engine.finish(id),
                1 => engine.reset(id, ResetCode::Aborted, "chance"),
                _ => assert!(!matches!(engine.fill(id, |_| Ok(0)), Fill::Asked(Err(_)))),
            },
        }
    }
}

/// See the first lines of this file.
pub fn run(input: &[u8]) {
    if let Some(request) = Request::parse(input) {
        assert_eq!(
            Request::parse(request.to_string().as_bytes()),
            Some(request)
        );
    }
    let mut answers = Vec::new();
    let mut negotiation = Negotiation::default();
    let room = negotiation.room().min(input.len());
    let _ = negotiation.take(&input[..room], &mut answers);
    assert!(answers.len() <= 12);

    let mut engine = Engine::new(Role::Acceptor);
    let own = engine.open(b"own", None).expect("the first");
    let _ = engine.fill(own, |place| Ok(place.len()));
    let mut rest = input;
    while let Some((&[low, high, choice], behind)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(behind.len());
        let (message, behind) = behind.split_at(len);
        rest = behind;
        let Some((number, mut memory)) = engine.next_receive().expect("memory") else {
            return;
        };
        memory[..len].copy_from_slice(message);
        if engine.on_message(number, memory, len).is_err() {
            return;
        }
        use_streams(&mut engine, choice);
        assert!(engine.streams() <= 2 * MAX_STREAMS);
        while let Some(sent) = engine.next_message(Instant::now()) {
            match Message::parse(&sent.memory).expect("a message") {
                Message::Bundle(mut frames) => assert!(frames.all(|it| it.is_ok())),
                Message::Chunk { bytes, .. } => assert!(!bytes.is_empty()),
            }
            engine.on_sent(sent.number, sent.memory, Instant::now());
        }
    }
}
