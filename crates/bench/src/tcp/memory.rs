//! From the sender's buffer straight to the receiver's, a lap at a time.

use std::net::SocketAddr;

use anyhow::{Context, Result};

use super::super::cpu::Meter;
use super::super::mover::Run;
use super::super::pattern::WORD;
use super::super::protocol::Measured;
use super::{Connection, DONE, GO, Listener};
use zerolane_cli::exit::Exit;

/// Receives all laps into `buffer`.
pub(crate) fn receive(listener: Listener, run: &Run<'_>, buffer: &mut [u8]) -> Result<Measured> {
    let mut connection = listener.accept(run.job.token, &run.job.tcp)?;
    connection.say(GO)?;
    let meter = Meter::start(run.core);
    for lap in 0..run.laps {
        receive_lap(&mut connection, run, buffer, lap)?;
    }
    let (seconds, cpu) = meter.stop();
    connection.say(DONE)?;
    Ok(Measured::new(run.bytes, seconds, cpu, connection.syscalls))
}

fn receive_lap(
    connection: &mut Connection,
    run: &Run<'_>,
    buffer: &mut [u8],
    lap: u64,
) -> Result<()> {
    let mut filled = 0;
    let mut checked = 0;
    while filled < buffer.len() {
        let end = buffer.len().min(filled + run.job.tcp.recv_bytes);
        filled += connection.recv_some(&mut buffer[filled..end])?;
        let whole = filled / WORD * WORD;
        run.pattern
            .check_stamps(&buffer[checked..whole], checked, lap)
            .context(Exit::Corrupt)?;
        checked = whole;
    }
    Ok(())
}

/// Sends all laps from `buffer`.
pub(crate) fn send(to: SocketAddr, run: &Run<'_>, buffer: &mut [u8]) -> Result<Measured> {
    let mut connection = Connection::open(to, run.job.token, &run.job.tcp)?;
    connection.await_word(GO)?;
    let meter = Meter::start(run.core);
    for lap in 0..run.laps {
        let mut base = 0;
        for piece in buffer.chunks_mut(run.job.tcp.send_bytes) {
            run.pattern.stamp(piece, base, lap);
            connection.send_all(piece)?;
            base += piece.len();
        }
    }
    // What is still in the socket costs this core too: wait until it is there.
    connection.await_word(DONE)?;
    let (seconds, cpu) = meter.stop();
    Ok(Measured::new(run.bytes, seconds, cpu, connection.syscalls))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::thread;

    use super::*;
    use crate::pattern::Pattern;
    use crate::protocol::{Job, Mover, Payload, TcpTuning};

    const LEN: usize = 1 << 20;
    const LAPS: u64 = 3;

    fn job(token: u64) -> Job {
        // Odd sizes: pieces that end within words at the receiver.
        let tcp = TcpTuning {
            send_bytes: 40_000,
            recv_bytes: 10_008,
            ..TcpTuning::default()
        };
        Job {
            mover: Mover::Tcp,
            payload: Payload::Laps(LAPS),
            token,
            tcp,
            security: Default::default(),
        }
    }

    fn run(job: &Job, seed: u64) -> Run<'_> {
        let pattern = Pattern::new(seed, LEN);
        Run {
            job,
            laps: LAPS,
            pattern,
            bytes: LAPS * LEN as u64,
            core: 0,
        }
    }

    /// Sends with one seed, receives expecting another.
    fn transfer(sent: u64, expected: u64) -> (Result<Measured>, Vec<u8>) {
        let job = job(77);
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let listener = Listener::bind(address, &job.tcp).unwrap();
        let to = SocketAddr::new(address, listener.port().unwrap());
        let mut received = vec![0; LEN];
        let measured = thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = vec![0; LEN];
                Pattern::new(sent, LEN).fill(&mut buffer);
                // Fails when the receiver finds the bytes wrong.
                let _ = send(to, &run(&job, sent), &mut buffer);
            });
            receive(listener, &run(&job, expected), &mut received)
        });
        (measured, received)
    }

    #[test]
    fn receive__has_every_byte_of_the_last_lap() {
        let (measured, received) = transfer(5, 5);
        let measured = measured.unwrap();
        assert_eq!(measured.bytes, LAPS * LEN as u64);
        assert!(measured.syscalls >= LAPS * LEN as u64 / 10_008);
        Pattern::new(5, LEN).check_all(&received, LAPS - 1).unwrap();
    }

    #[test]
    fn receive__wrong_bytes_are_corrupt() {
        let error = transfer(5, 6).0.unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Corrupt, "{error:#}");
    }

    #[test]
    fn receive__a_stranger_is_not_the_sender() {
        let (right, wrong) = (job(1), job(2));
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let listener = Listener::bind(address, &right.tcp).unwrap();
        let to = SocketAddr::new(address, listener.port().unwrap());
        let mut received = vec![0; LEN];
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = vec![0; LEN];
                let refused = send(to, &run(&wrong, 5), &mut buffer);
                assert!(refused.is_err());
                Pattern::new(5, LEN).fill(&mut buffer);
                send(to, &run(&right, 5), &mut buffer).unwrap();
            });
            receive(listener, &run(&right, 5), &mut received).unwrap();
        });
        Pattern::new(5, LEN).check_all(&received, LAPS - 1).unwrap();
    }
}
