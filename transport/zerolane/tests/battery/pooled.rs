//! Tests that messages take memory of a pool, which another thread refills.

use crate::content;
use crate::drive::{both, next};
use crate::path::Pair;
use std::sync::mpsc::channel;
use std::time::Duration;
use zerolane::failure::TransferError;
use zerolane::request::Message;
use zerolane::{Completion, Connection, ReceivePool, Region};

/// Pieces of the pool: fewer than messages in flight.
const PIECES: u64 = 3;
const MESSAGES: u64 = 40;
/// The n-th message has n times as many bytes.
const STEP: usize = 1_250;
const ROOM: usize = MESSAGES as usize * STEP;
/// Sent in the middle: fails alone.
const TOO_LONG: usize = ROOM + 1;

/// Each message arrives once, with its own content; one that is too long fails at both ends, and no other does.
pub fn take_memory_of_a_pool(mut pair: Pair) {
    let pool = ReceivePool::new();
    pair.b.set_receive_pool(&pool).expect("none before");
    pair.b.set_receive_pool(&pool).expect("the same");
    pair.b
        .set_receive_pool(&ReceivePool::new())
        .expect_err("it has one");
    let (used, refill) = channel::<Completion>();
    std::thread::scope(|scope| {
        let pool = &pool;
        scope.spawn(move || {
            // The peer waits, and this end sleeps.
            std::thread::sleep(Duration::from_millis(20));
            for context in 0..PIECES {
                let memory = Region::anonymous(ROOM).expect("memory");
                pool.add(memory, context).expect("open");
            }
            for completion in refill {
                assert!(completion.recycle());
            }
        });
        both(&mut pair, send_all, |b| {
            receive_all(b, |it| drop(used.send(it)))
        });
        drop(used);
    });
    assert_eq!(pool.len(), PIECES as usize);
    let mut contexts: Vec<_> = std::iter::from_fn(|| Some(pool.remove()?.1)).collect();
    contexts.sort_unstable();
    assert_eq!(contexts, (0..PIECES).collect::<Vec<_>>());
}

fn length(n: u64) -> usize {
    match n {
        MESSAGES => TOO_LONG,
        n => n as usize * STEP,
    }
}

fn send_all(connection: &mut Connection) {
    let middle = MESSAGES / 2;
    let order = (0..middle).chain([MESSAGES]).chain(middle..MESSAGES);
    for n in order {
        let control = n.to_le_bytes();
        // Those without control may be their payload alone.
        let control = if n % 2 == 0 { &control[..] } else { &[] };
        let message = Message::new(control).context(n);
        let posted = match length(n) {
            0 => connection.post(message).map_err(|it| it.error),
            len => {
                let message = message.payload(content::region(n, len));
                connection.post(message).map_err(|it| it.error)
            }
        };
        posted.expect("posted");
    }
    for _ in 0..=MESSAGES {
        let completion = next(connection);
        match completion.context {
            MESSAGES => assert_eq!(completion.result, Err(too_long())),
            _ => drop(completion.result.expect("received")),
        }
    }
}

fn too_long() -> TransferError {
    TransferError::MessageTooLarge {
        length: TOO_LONG as u64,
        room: ROOM as u64,
    }
}

fn receive_all(connection: &mut Connection, mut done: impl FnMut(Completion)) {
    let mut left: Vec<_> = (0..=MESSAGES).collect();
    while !left.is_empty() {
        let completion = next(connection);
        assert!(completion.context < PIECES);
        let n = match completion.result {
            Ok(len) => (len / STEP) as u64,
            Err(error) => {
                assert_eq!(error, too_long());
                MESSAGES
            }
        };
        let place = left.iter().position(|it| *it == n);
        left.swap_remove(place.expect("each once"));
        if let Ok(len) = completion.result {
            let control = completion.control().expect("a message");
            assert!(control == n.to_le_bytes() || control.is_empty() && n % 2 == 1);
            let memory = completion.memory().expect("the pool's");
            assert_eq!(memory.len(), ROOM);
            if let zerolane::memory::Memory::Exclusive(region) = memory {
                content::verify(n, &region[..len]);
            }
        }
        done(completion);
    }
}
