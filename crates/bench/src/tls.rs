//! The TLS mover: TLS 1.3 by rustls over the TCP mover's sockets, tuned as a good user would.
//!
//! [`mod@sender`] and [`mod@receiver`] are its two ends.

pub(crate) mod receiver;
pub(crate) mod sender;

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::thread;

    use super::{receiver, sender};
    use crate::mover::Run;
    use crate::pattern::Pattern;
    use crate::protocol::{Job, Mover, Payload, TcpTuning};
    use crate::tcp::Listener;
    use zerolane_cli::exit::Exit;

    /// No whole number of records, and more than is received at once.
    const LEN: usize = (1 << 20) + 8;
    const LAPS: u64 = 2;

    /// Sends with one seed, receives expecting another.
    fn transfer(sent: u64, expected: u64) -> anyhow::Result<Vec<u8>> {
        let job = Job {
            mover: Mover::Tls,
            payload: Payload::Laps(LAPS),
            token: 7,
            tcp: TcpTuning::default(),
            security: Default::default(),
        };
        let run = |seed| Run {
            job: &job,
            laps: LAPS,
            pattern: Pattern::new(seed, LEN),
            bytes: LAPS * LEN as u64,
            core: 0,
        };
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let listener = Listener::bind(address, &job.tcp)?;
        let to = SocketAddr::new(address, listener.port()?);
        let mut received = vec![0; LEN];
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = vec![0; LEN];
                Pattern::new(sent, LEN).fill(&mut buffer);
                // Fails when the receiver finds the bytes wrong.
                let _ = sender::send(to, &run(sent), &mut buffer);
            });
            receiver::receive(listener, &run(expected), &mut received)
        })?;
        Ok(received)
    }

    #[test]
    fn transfer__every_byte_of_the_last_lap() {
        let received = transfer(5, 5).unwrap();
        let pattern = Pattern::new(5, LEN);
        pattern.check_all(&received, LAPS - 1).unwrap();
    }

    #[test]
    fn transfer__wrong_bytes_are_corrupt() {
        let error = transfer(5, 6).unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Corrupt, "{error:#}");
    }
}
