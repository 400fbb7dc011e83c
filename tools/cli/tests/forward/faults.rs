//! Tests forwards whose ends die: nothing is lost, doubled or reordered, and no end of data is made up.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::content::content;
use crate::lab::{Lab, PATIENCE, connect, echo, read_all, reset, target};

#[test]
fn forward__a_peer_that_dies_is_a_reset_and_comes_again() {
    let lab = Lab::new();
    let endless = target(|mut stream| while stream.write_all(&[1; 4096]).is_ok() {});
    let (server, peer) = lab.serve(&["--connect", &endless]);
    let (mut near, on) = lab.forward("0", &endless, &peer);
    let mut stream = connect(&on);
    stream.read_exact(&mut vec![0; 100_000]).unwrap();
    server.signal(Signal::SIGKILL);
    drop(server);
    let mut rest = Vec::new();
    assert_eq!(
        stream.read_to_end(&mut rest).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    near.says("broke (");
    let (_server, _) = lab.serve_at(&peer, &["--connect", &endless]);
    near.says(" again.");
    connect(&on).read_exact(&mut vec![0; 100_000]).unwrap();
}

#[test]
fn forward__its_own_death_is_a_reset_or_an_error_at_both_ends() {
    let lab = Lab::new();
    let (tell, hear) = std::sync::mpsc::channel();
    let waits = target(move |stream| {
        tell.send(read_all(&stream).map_err(|it| it.kind()))
            .unwrap();
    });
    let (_server, peer) = lab.serve(&["--connect", &waits]);
    let (near, on) = lab.forward("0", &waits, &peer);
    let mut stream = connect(&on);
    stream.write_all(b"half a que").unwrap();
    thread::sleep(Duration::from_millis(300));
    near.signal(Signal::SIGKILL);
    let end = hear.recv_timeout(PATIENCE).unwrap();
    let reset = Err(ErrorKind::ConnectionReset);
    assert_eq!(end, reset, "not the end of its data");
    let end = read_all(&stream).map_err(|it| it.kind());
    assert_eq!(end, reset, "here too");
}

/// One client of a round: writes, reads, ends or resets at random; checks every byte.
fn client(on: &str, mut dice: fastrand::Rng) {
    let Ok(stream) = TcpStream::connect(on) else {
        return;
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let sent = content(
        1,
        match dice.u8(0..3) {
            0 => dice.usize(0..100),
            1 => dice.usize(0..100_000),
            _ => dice.usize(0..4 << 20),
        },
    );
    let resets = dice.u8(0..5) == 0;
    let mut writer = stream.try_clone().unwrap();
    let bytes = sent.clone();
    let mut chance = dice.fork();
    let writes = thread::spawn(move || {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let len = chance.usize(1..200_000).min(rest.len());
            if writer.write_all(&rest[..len]).is_err() {
                return false;
            }
            rest = &rest[len..];
            if resets && chance.u8(0..8) == 0 {
                return false;
            }
        }
        writer.shutdown(Shutdown::Write).is_ok()
    });
    let mut back = Vec::new();
    if resets {
        // It may wait for more than it wrote.
        stream
            .set_read_timeout(Some(Duration::from_secs(1)))
            .unwrap();
        let _ = (&stream).take(dice.u64(0..100_000)).read_to_end(&mut back);
        assert!(sent.starts_with(&back), "wrong bytes");
        let _ = stream.shutdown(Shutdown::Read);
        let _ = writes.join();
        return reset(stream);
    }
    let read = (&stream).read_to_end(&mut back);
    let finished = writes.join().unwrap();
    assert!(sent.starts_with(&back), "wrong bytes");
    match read {
        // A writer that failed took the error of the reset.
        Ok(_) => assert!(
            !finished || back.len() == sent.len(),
            "an end after {} of {}",
            back.len(),
            sent.len()
        ),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

#[test]
fn forward__random_kills_never_make_up_an_end() {
    let rounds = std::env::var("ZEROLANE_ROUNDS")
        .ok()
        .and_then(|it| it.parse().ok())
        .unwrap_or(6);
    let seed = std::env::var("ZEROLANE_SEED")
        .ok()
        .and_then(|it| it.parse().ok());
    let mut seeds = fastrand::Rng::new();
    let echo = echo();
    for _ in 0..rounds {
        let seed: u64 = seed.unwrap_or_else(|| seeds.u64(..));
        println!("ZEROLANE_SEED={seed}");
        let mut dice = fastrand::Rng::with_seed(seed);
        let lab = Lab::new();
        let (server, peer) = lab.serve(&["--connect", &echo]);
        let (near, on) = lab.forward("0", &echo, &peer);
        let kills = dice.u8(0..3);
        let clients: Vec<_> = (0..12)
            .map(|_| {
                let (on, dice) = (on.clone(), dice.fork());
                thread::spawn(move || client(&on, dice))
            })
            .collect();
        thread::sleep(Duration::from_millis(dice.u64(0..400)));
        match kills {
            0 => {
                server.signal(Signal::SIGKILL);
                // New connections would wait until it is there again.
                thread::sleep(Duration::from_millis(dice.u64(0..400)));
                near.signal(Signal::SIGKILL);
            }
            1 => near.signal(Signal::SIGKILL),
            _ => {}
        }
        for client in clients {
            client.join().unwrap();
        }
    }
}
