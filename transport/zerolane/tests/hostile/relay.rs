//! Relays every datagram between two ends through an on-path attacker.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The attacker's treatment of a datagram: all returned datagrams are sent on, in order.
pub(super) type Attack = Box<dyn FnMut(&[u8]) -> Vec<Vec<u8>> + Send>;

pub(super) struct Relay {
    /// The address for the client.
    pub(super) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts a relay between the first client and `server`.
    pub(super) fn start(server: SocketAddr, mut attack: Attack) -> Relay {
        let outside = UdpSocket::bind("127.0.0.1:0").unwrap();
        let inside = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = outside.local_addr().unwrap();
        inside.connect(server).unwrap();
        for socket in [&outside, &inside] {
            socket.set_nonblocking(true).unwrap();
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let end = Instant::now() + super::PATIENCE;
            let mut client = None;
            let mut buffer = vec![0; 65_536];
            while !stopped.load(Ordering::Relaxed) && Instant::now() < end {
                let mut idle = true;
                match outside.recv_from(&mut buffer) {
                    Ok((len, from)) => {
                        idle = false;
                        client = Some(from);
                        for datagram in attack(&buffer[..len]) {
                            let _ = inside.send(&datagram);
                        }
                    }
                    Err(error) => assert!(is_empty(&error), "{error}"),
                }
                match inside.recv(&mut buffer) {
                    Ok(len) => {
                        idle = false;
                        for datagram in attack(&buffer[..len]) {
                            let _ = outside.send_to(&datagram, client.unwrap());
                        }
                    }
                    Err(error) => assert!(is_empty(&error), "{error}"),
                }
                if idle {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        });
        Relay {
            address,
            stop,
            thread: Some(thread),
        }
    }
}

fn is_empty(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::ConnectionRefused
    )
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "the relay failed"
            );
        }
    }
}
