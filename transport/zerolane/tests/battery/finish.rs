//! Tests that one direction can be finished while the other continues.

use crate::content;
use crate::drive::{both, next};
use crate::path::Path;
use zerolane::failure::{PostError, TransferError};
use zerolane::request::{Message, ReceiveMessage};
use zerolane::{Connection, Error, Options, Region};

const LENGTHS: [usize; 5] = [1, 3_000, 300_000, 0, 70_000];

fn empty(len: usize) -> Region {
    Region::anonymous(len).expect("memory")
}

/// A reads answers until B has no more; B answers although its peer finished at once.
pub fn the_other_direction_goes_on(path: Path, base: &Options) {
    let Some(mut pair) = path.connect(base) else {
        return;
    };
    let asks = |a: &mut Connection| {
        for (seed, len) in (0..).zip(LENGTHS) {
            a.post_send(content::region(seed, len)).expect("posted");
        }
        let sent = a.post(Message::new(b"that is all"));
        sent.expect("posted");
        a.finish().expect("open");
        let refused = a.post_send(empty(1)).expect_err("finished").error;
        assert!(matches!(refused, Error::Post(PostError::Finished)));
        for _ in 0..=LENGTHS.len() {
            assert!(next(a).result.is_ok());
        }
        let mut buffer = vec![0; 300_000];
        for seed in 100.. {
            match a.recv_into(&mut buffer) {
                Ok(length) => content::verify(seed, &buffer[..length]),
                Err(Error::Transfer(TransferError::Finished)) => {
                    assert_eq!(seed, 100 + LENGTHS.len() as u64);
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
    };
    let answers = |b: &mut Connection| {
        b.post(ReceiveMessage::new()).expect("posted");
        b.post(ReceiveMessage::new()).expect("posted");
        for _ in 0..LENGTHS.len() + 2 {
            b.post_recv(empty(300_000)).expect("posted");
        }
        let (mut lengths, mut letters, mut finished) = (vec![], 0, 0);
        while finished < 3 {
            let completion = next(b);
            match completion.result {
                Ok(_) if completion.control() == Some(b"that is all") => letters += 1,
                Ok(length) => lengths.push(length),
                Err(error) => {
                    assert_eq!(error, TransferError::Finished);
                    finished += 1;
                }
            }
        }
        lengths.sort_unstable();
        let mut expected = LENGTHS;
        expected.sort_unstable();
        assert_eq!((&lengths[..], letters), (&expected[..], 1));
        for (seed, len) in (100..).zip(LENGTHS) {
            b.send(&content::region(seed, len)).expect("not finished");
        }
        b.finish().expect("open");
    };
    both(&mut pair, asks, answers);
}
