//! Tests that an attacker on the path cannot read, change, truncate, replay or forge packets.

use super::relay::{Attack, Relay};
use super::{options, pattern, serve};
use std::sync::{Arc, Mutex};
use zerolane::counters::{Account, DropReason};
use zerolane::security::{Cipher, Mode};
use zerolane::{Connection, Security};

const BYTES: usize = 4 << 20;

/// Sends the pattern through `attack`; returns the received bytes and the receiver's account.
fn transfer(security: &Security, attack: Attack) -> (Vec<u8>, Account) {
    let (server, receiver) = serve(security.clone(), |connection| {
        let mut connection = connection.expect("a client");
        let mut buffer = vec![0; BYTES];
        let len = connection.recv_into(&mut buffer).unwrap();
        assert_eq!(len, BYTES);
        let account = connection.account();
        connection.close().unwrap();
        (buffer, account)
    });
    let relay = Relay::start(server, attack);
    let mut sender = Connection::connect(relay.address, &options(security.clone())).unwrap();
    sender.send(&pattern(BYTES)).unwrap();
    sender.close().unwrap();
    receiver.join().unwrap()
}

/// Whether the overheard packets contain the payload.
fn is_overheard(security: &Security) -> bool {
    let heard = Arc::new(Mutex::new(vec![]));
    let listener = Arc::clone(&heard);
    let (received, _) = transfer(
        security,
        Box::new(move |datagram| {
            listener.lock().unwrap().extend_from_slice(datagram);
            vec![datagram.to_vec()]
        }),
    );
    assert!(received == pattern(BYTES));
    let needle = &pattern(BYTES)[BYTES / 2..][..64];
    let heard = heard.lock().unwrap();
    assert!(heard.len() > BYTES);
    heard.windows(needle.len()).any(|seen| seen == needle)
}

#[test]
fn encrypted__what_is_sent_cannot_be_overheard() {
    assert!(!is_overheard(&Security::default()));
    assert!(
        is_overheard(&Security::plain()),
        "the search finds what is there"
    );
    assert!(
        is_overheard(&Security::authenticated()),
        "authenticated hides nothing, and does not say so"
    );
}

/// Changes, truncates, replays and forges packets, next to those that it forwards.
fn mischief() -> Attack {
    let mut turn = 0usize;
    let mut earlier: Vec<Vec<u8>> = vec![];
    Box::new(move |datagram: &[u8]| {
        turn += 1;
        let mut sent = vec![];
        if turn.is_multiple_of(4) {
            // Before the right one, so that the forgery lands by forecast.
            let mut changed = datagram.to_vec();
            let bit = turn * 7919 % (changed.len() * 8);
            changed[bit / 8] ^= 1 << (bit % 8);
            sent.push(changed);
        }
        if turn % 16 == 1 {
            sent.push(datagram[..turn * 31 % datagram.len()].to_vec());
        }
        sent.push(datagram.to_vec());
        if turn % 8 == 2 {
            sent.extend(earlier.iter().step_by(3).cloned());
        }
        if turn % 16 == 3 {
            sent.push((0..datagram.len()).map(|n| (n * turn) as u8).collect());
            // A Data header of this very connection, with arbitrary bytes after it.
            let mut made_up = datagram.to_vec();
            made_up.iter_mut().skip(40).for_each(|byte| *byte = 0x55);
            sent.push(made_up);
        }
        earlier.push(datagram.to_vec());
        if earlier.len() > 8 {
            earlier.remove(0);
        }
        sent
    })
}

#[test]
fn sealed__completes_under_changed_cut_repeated_and_made_up_packets() {
    for cipher in Cipher::ALL {
        let security = Security {
            cipher: Some(cipher),
            ..match cipher.hides() {
                true => Security::default(),
                false => Security::authenticated(),
            }
        };
        let (received, account) = transfer(&security, mischief());
        assert!(received == pattern(BYTES), "{cipher:?}: wrong content");
        assert_eq!(account.cipher, Some(cipher));
        assert!(account.protocol.dropped(DropReason::Forged) > 0);
        assert!(account.protocol.dropped(DropReason::Replayed) > 0);
        assert_eq!(account.protocol.bytes_received, BYTES as u64);
    }
}

#[test]
fn encrypted__is_the_default_and_shown() {
    assert_eq!(Security::default().mode, Mode::Encrypted);
    let (_, account) = transfer(
        &Security::default(),
        Box::new(|datagram| vec![datagram.to_vec()]),
    );
    assert!(account.cipher.is_some());
    let (_, account) = transfer(
        &Security::plain(),
        Box::new(|datagram| vec![datagram.to_vec()]),
    );
    assert!(account.cipher.is_none());
}
