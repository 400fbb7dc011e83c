//! Tests the door with clients that speak NBD themselves.

use std::fs;
use std::io::Write;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use zerolane_nbd::server::ServerEvent;
use zerolane_nbd::session::Offence;

use crate::lab::{DISK, Lab};
use crate::raw::{FLUSH, LEAVE, READ, Raw, TRIM, WRITE, ZERO};

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn cut_off(news: &Receiver<ServerEvent>) -> Offence {
    loop {
        if let ServerEvent::CutOff(offence) = news.recv_timeout(PATIENCE).unwrap() {
            return offence;
        }
    }
}

/// Bytes that begin and end anywhere, of several clients, do what a model of a disk does; each has a part of the disk of
/// its own, whose ends are within blocks.
#[test]
fn door__bytes_of_several_clients_do_what_the_model_does() {
    let seed = std::env::var("ZEROLANE_SEED").ok();
    let seed = seed.map_or_else(|| fastrand::u64(..), |it| it.parse().unwrap());
    println!("ZEROLANE_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let lab = Lab::new(false);
    const CLIENTS: usize = 4;
    let mut clients: Vec<Raw> = (0..CLIENTS).map(|_| Raw::new(&lab.door.socket)).collect();
    let mut model = vec![0; DISK];
    // Neighbours share a block.
    const PART: usize = 1003;
    for _ in 0..100 {
        let mut asked = Vec::new();
        for (number, client) in clients.iter_mut().enumerate() {
            // Requests that are in progress together have no order: each has a part of its own.
            for piece in 0..3 {
                let from = (number * 3 + piece) * PART;
                let start = from + rng.usize(0..PART);
                let bytes = rng.usize(0..=(from + PART - start));
                let (at, length) = (start as u64, bytes as u32);
                let range = start..start + bytes;
                let cookie = match rng.u8(0..4) {
                    0 => client.ask(READ, at, length, &[]),
                    1 => {
                        model[range.clone()].fill(0);
                        client.ask(ZERO, at, length, &[])
                    }
                    _ => {
                        model[range.clone()].fill_with(|| rng.u8(..));
                        client.ask(WRITE, at, length, &model[range.clone()])
                    }
                };
                asked.push((number, cookie, range));
            }
        }
        for (number, client) in clients.iter_mut().enumerate() {
            for _ in 0..3 {
                let reply = client.reply();
                assert_eq!(reply.error, 0);
                let known = asked
                    .iter()
                    .find(|it| (it.0, it.1) == (number, reply.cookie));
                let range = known.unwrap().2.clone();
                if !reply.data.is_empty() {
                    assert!(reply.data == model[range], "what was read");
                }
            }
        }
    }
    assert_eq!(clients[0].call(FLUSH, 0, 0, &[]).error, 0);
    assert_eq!(clients[1].call(TRIM, 1, 5, &[]).error, 0, "no whole block");
    let whole = clients[2].call(READ, 0, DISK as u32, &[]);
    assert!(whole.data == model && fs::read(&lab.image).unwrap() == model);
}

#[test]
fn door__what_is_beyond_the_end_is_an_error_and_writes_nothing() {
    let lab = Lab::new(false);
    let mut raw = Raw::new(&lab.door.socket);
    let end = DISK as u64;
    let payload = [7; 1024];
    assert_eq!(raw.call(WRITE, end - 512, 1024, &payload).error, 28);
    assert_eq!(raw.call(READ, end - 512, 1024, &[]).error, 22);
    assert_eq!(raw.call(READ, u64::MAX, 1024, &[]).error, 22);
    assert_eq!(raw.call(ZERO, end, 1, &[]).error, 28);
    assert_eq!(raw.call(TRIM, end, 1, &[]).error, 22);
    assert_eq!(raw.call(55, 0, 512, &[]).error, 22);
    // The payload of what was refused was passed over.
    assert_eq!(raw.call(WRITE, end - 512, 512, &payload[..512]).error, 0);
    let image = fs::read(&lab.image).unwrap();
    assert!(image[..DISK - 512].iter().all(|&it| it == 0));
    assert!(image[DISK - 512..].iter().all(|&it| it == 7));
}

#[test]
fn door__what_no_client_does_ends_it_and_no_other() {
    let lab = Lab::new(false);
    let mut good = Raw::new(&lab.door.socket);
    let mut noise = Raw::silent(&lab.door.socket);
    noise.stream.write_all(&[0xff; 100]).unwrap();
    assert_eq!(cut_off(&lab.door.news), Offence::Flags);
    assert!(noise.is_over());
    let mut request = Raw::new(&lab.door.socket);
    request.stream.write_all(&[7; 28]).unwrap();
    assert_eq!(cut_off(&lab.door.news), Offence::Magic);
    assert!(request.is_over());
    let mut huge = Raw::new(&lab.door.socket);
    huge.ask(WRITE, 0, u32::MAX, &[7; 100]);
    assert_eq!(cut_off(&lab.door.news), Offence::Payload(u32::MAX));
    assert!(huge.is_over());
    assert_eq!(good.call(WRITE, 0, 512, &[1; 512]).error, 0);
    assert_eq!(good.call(READ, 0, 512, &[]).data, [1; 512]);
    assert!(
        fs::read(&lab.image).unwrap()[512..]
            .iter()
            .all(|&it| it == 0)
    );
}

/// Clients that go at any point: while they write, with answers that they did not take, and politely.
#[test]
fn door__clients_that_go_leave_it_as_it_was() {
    let lab = Lab::new(false);
    for round in 0..40u64 {
        let mut raw = Raw::new(&lab.door.socket);
        match round % 4 {
            // In the middle of a payload.
            0 => {
                raw.ask(WRITE, 0, 1 << 20, &vec![9; 300_000]);
            }
            // With replies of more than any socket keeps.
            1 => {
                for _ in 0..8 {
                    raw.ask(READ, 0, 4 << 20, &[]);
                }
            }
            2 => {
                for _ in 0..100 {
                    raw.ask(WRITE, 1 << 20, 4096, &[5; 4096]);
                }
            }
            _ => {
                let cookie = raw.ask(READ, 0, 4096, &[]);
                raw.ask(LEAVE, 0, 0, &[]);
                assert_eq!(raw.reply().cookie, cookie, "it is answered before it goes");
                assert!(raw.is_over());
            }
        }
    }
    let mut last = Raw::new(&lab.door.socket);
    let read = last.call(READ, 0, 2 << 20, &[]).data;
    // A payload that was not whole was not written.
    assert!(read[..1 << 20].iter().all(|&it| it == 0));
    assert!(read[1 << 20..][..4096].iter().all(|&it| it == 5));
}

/// More of them than may be connected. One at a time, so that all are taken, and each is told to be gone.
#[test]
fn door__clients_that_go_amid_a_payload_make_room_for_others() {
    let lab = Lab::new(false);
    let next = || lab.door.news.recv_timeout(PATIENCE).unwrap();
    for round in 0..40 {
        let mut raw = Raw::new(&lab.door.socket);
        // One whose payload is kept, and one that is refused, whose payload is passed over.
        let at = if round % 2 == 0 { 0 } else { DISK as u64 };
        raw.ask(WRITE, at, 1 << 20, &vec![9; 300_000]);
        drop(raw);
        assert_eq!(
            [next(), next()],
            [ServerEvent::Connected, ServerEvent::Disconnected],
            "{round}"
        );
    }
    let mut clients: Vec<Raw> = (0..16).map(|_| Raw::new(&lab.door.socket)).collect();
    for client in &mut clients {
        assert_eq!(client.call(READ, 0, 512, &[]).data, [0; 512]);
    }
}

#[test]
fn door__a_client_that_takes_no_answers_holds_up_no_other() {
    let lab = Lab::new(false);
    let mut slow = Raw::new(&lab.door.socket);
    // More than the server keeps for a client: it reads no more of it then.
    for _ in 0..12 {
        slow.ask(READ, 0, 16 << 20, &[]);
    }
    let mut good = Raw::new(&lab.door.socket);
    for number in 0..100 {
        assert_eq!(good.call(WRITE, number * 512, 512, &[3; 512]).error, 0);
    }
    let answers: Vec<usize> = (0..12).map(|_| slow.reply().data.len()).collect();
    assert_eq!(answers, [16 << 20; 12], "they come when it takes them");
}

/// It asks for what is refused at once, so that answers would be all that grows.
#[test]
fn door__answers_that_a_client_does_not_take_are_few() {
    let lab = Lab::new(false);
    let mut slow = Raw::new(&lab.door.socket);
    slow.stream
        .set_write_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let request = [&0x2560_9513u32.to_be_bytes()[..], &[0, 0, 0, 55], &[0; 20]].concat();
    let many = request.repeat(1000);
    let all = (0..2000).all(|_| slow.stream.write_all(&many).is_ok());
    assert!(
        !all,
        "the server read 2 million requests, and has their answers"
    );
    let mut good = Raw::new(&lab.door.socket);
    assert_eq!(good.call(READ, 0, 512, &[]).error, 0);
}

#[test]
fn door__more_clients_than_there_may_be_are_turned_away() {
    let lab = Lab::new(false);
    let mut clients: Vec<Raw> = (0..16).map(|_| Raw::new(&lab.door.socket)).collect();
    let mut more = Raw::silent(&lab.door.socket);
    assert!(more.is_over());
    assert_eq!(clients[15].call(READ, 0, 512, &[]).data, [0; 512]);
    drop(clients.remove(0));
    let gone = |it: ServerEvent| it == ServerEvent::Disconnected;
    while !gone(lab.door.news.recv_timeout(PATIENCE).unwrap()) {}
    assert_eq!(Raw::new(&lab.door.socket).call(READ, 0, 512, &[]).error, 0);
}

/// It wakes for its connection to the disk's host, which sees now and then whether that lives, and where this host is; not for
/// itself. On a busy machine it wakes less often, never more.
#[test]
fn door__of_which_nothing_is_asked_sleeps() {
    const SECONDS: usize = 20;
    let lab = Lab::new(false);
    let mut client = Raw::new(&lab.door.socket);
    assert_eq!(client.call(READ, 0, 4096, &[]).error, 0);
    let mut wakes = (0..SECONDS).map(|_| {
        let before = lab.door.sleeps();
        thread::sleep(Duration::from_secs(1));
        lab.door.sleeps() - before
    });
    assert!(wakes.any(|it| it < 5), "more than 4 times each second");
    assert_eq!(client.call(READ, 0, 4096, &[]).error, 0);
}
