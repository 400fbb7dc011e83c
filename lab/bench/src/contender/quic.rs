//! Carries buffers and files over QUIC: quinn, AES-128-GCM, one stream, tuned as a good user would.
//!
//! # What was tried
//!
//! `zerolane bench bulk --security encrypted --only quinn --bytes 512MiB`, on veth, MTU 1500, GSO and GRO on, medians
//! of 3 runs each:
//!
//! | what | Gb/s |
//! |---|---|
//! | cubic, 16 MiB of window, acknowledgements as they are by default | 4.5 |
//! | bbr | 3.8 |
//! | an acknowledgement for 10 datagrams; for 50 | 4.7; 4.8 |
//! | windows of 1, 4, 64 MiB | 4.4, 5.0, 4.6 |
//! | 64 KiB and 1 MiB handed over at once instead of 256 KiB | 4.6, 4.4 |
//! | MTU 9000 | 3.5 |
//! | aws-lc-rs instead of ring, paired | 3.2 to 3.3 |

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use nix::sys::socket::{setsockopt, sockopt};
use quinn::congestion::CubicConfig;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    AckFrequencyConfig, ClientConfig, Endpoint, EndpointConfig, IdleTimeout, RecvStream,
    SendStream, ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use socket2::SockRef;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::certificate::{self, NAME};
use super::contract::{Contender, Listener, Part};
use super::stream::{self, Stream};
use crate::job::{Job, Work};
use crate::limits::{CONNECT, STALL};
use crate::measured::Measured;

/// Most payload handed over at once, which quinn copies.
const PIECE_BYTES: usize = 256 << 10;

/// Most datagrams' worth of payload taken at once.
const CHUNKS: usize = 64;

/// Payload that may be in flight, and that a sender keeps, bytes.
const WINDOW_BYTES: u32 = 4 << 20;

/// Datagrams for each acknowledgement.
const ACKNOWLEDGED_EVERY: u32 = 10;

/// What both ends ask of their sockets' buffers, bytes.
const SOCKET_BYTES: usize = 8 << 20;

/// Largest datagram that is sent or taken, bytes: what MTU 9000 leaves. quinn has room for 2048 of them.
const DATAGRAM_MAX_BYTES: u16 = 8972;

/// Headers of IPv4 and UDP, bytes; and those of IPv6.
const OVERHEAD_BYTES: (i32, i32) = (28, 48);

/// QUIC by quinn.
#[derive(Debug)]
pub(super) struct Quic;

impl Contender for Quic {
    fn able(&self, job: &Job) -> Result<(), String> {
        match job.work {
            Work::Laps(_) | Work::File(_) => Ok(()),
            _ => Err("QUIC carries only a buffer or a file, in one direction".into()),
        }
    }

    fn listen(&self, bind: IpAddr, _: &Job) -> Result<Box<dyn Listener>> {
        let runtime = runtime()?;
        let crypto = QuicServerConfig::try_from(certificate::server()?)?;
        let mut config = ServerConfig::with_crypto(Arc::new(crypto));
        config.transport_config(Arc::new(transport(None)?));
        let endpoint = endpoint(&runtime, bind, Some(config))?;
        Ok(Box::new(Listening { runtime, endpoint }))
    }

    fn initiate(&self, to: SocketAddr, part: &mut Part<'_>) -> Result<Vec<Measured>> {
        let token = part.job.token;
        stream::initiate(part, || Connection::open(to, token))
    }
}

/// A port waiting for the initiator.
#[derive(Debug)]
struct Listening {
    runtime: Runtime,
    endpoint: Endpoint,
}

impl Listener for Listening {
    fn port(&self) -> Result<u16> {
        Ok(self.endpoint.local_addr()?.port())
    }

    fn respond(self: Box<Self>, part: &mut Part<'_>) -> Result<Vec<Measured>> {
        let token = part.job.token;
        let mut waiting = Some(*self);
        stream::respond(part, || {
            let listening = waiting.take().context("only one connection at a time")?;
            Connection::accept(listening, token)
        })
    }
}

/// One stream both ways. Its tasks run while a call waits, and only then: on the core of this end.
struct Connection {
    endpoint: Endpoint,
    connection: quinn::Connection,
    send: SendStream,
    recv: RecvStream,
    /// Payload that was received and is not in its place yet.
    here: VecDeque<Bytes>,
    accepted: bool,
    /// Goes last, for the others are used in it.
    runtime: Runtime,
}

impl Connection {
    /// The first connection, which must know the token.
    fn accept(listening: Listening, token: u64) -> Result<Connection> {
        let Listening { runtime, endpoint } = listening;
        let opened = runtime.block_on(async {
            let incoming = timeout(CONNECT, endpoint.accept()).await;
            let incoming = incoming.context("no sender connected")?;
            let connection = incoming.context("the endpoint is closed")?.await?;
            let (send, mut recv) = connection.accept_bi().await?;
            let mut told = [0; 8];
            recv.read_exact(&mut told).await?;
            ensure!(
                told == token.to_le_bytes(),
                "the sender has the wrong token"
            );
            anyhow::Ok((connection, send, recv))
        })?;
        Ok(Connection::of(runtime, endpoint, opened, true))
    }

    /// Connects to the receiver and shows it the token.
    fn open(to: SocketAddr, token: u64) -> Result<Connection> {
        let runtime = runtime()?;
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let endpoint = endpoint(&runtime, any, None)?;
        let crypto = QuicClientConfig::try_from(certificate::client()?)?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(transport(Some(datagram_bytes(to)?))?));
        let opened = runtime.block_on(async {
            let connecting = endpoint.connect_with(config, to, NAME)?;
            let connection = timeout(CONNECT, connecting).await.context("no answer")?;
            let connection =
                connection.with_context(|| format!("cannot connect to the receiver at {to}"))?;
            let (mut send, recv) = connection.open_bi().await?;
            send.write_all(&token.to_le_bytes()).await?;
            anyhow::Ok((connection, send, recv))
        })?;
        Ok(Connection::of(runtime, endpoint, opened, false))
    }

    fn of(
        runtime: Runtime,
        endpoint: Endpoint,
        (connection, send, recv): (quinn::Connection, SendStream, RecvStream),
        accepted: bool,
    ) -> Connection {
        Connection {
            runtime,
            endpoint,
            connection,
            send,
            recv,
            here: VecDeque::new(),
            accepted,
        }
    }
}

impl Stream for Connection {
    fn send_bytes(&self) -> usize {
        PIECE_BYTES
    }

    fn receive_bytes(&self) -> usize {
        usize::MAX
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.runtime.block_on(self.send.write_all(bytes))?)
    }

    /// Copies what is here into `space`, after receiving some if nothing is.
    fn receive(&mut self, space: &mut [u8]) -> Result<usize> {
        if self.here.is_empty() {
            let mut fresh: [Bytes; CHUNKS] = std::array::from_fn(|_| Bytes::new());
            let count = self.runtime.block_on(self.recv.read_chunks(&mut fresh))?;
            let count = count.context("the peer closed the stream before its end")?;
            self.here.extend(fresh.into_iter().take(count));
        }
        let mut filled = 0;
        while let Some(chunk) = self.here.front_mut() {
            let len = chunk.len().min(space.len() - filled);
            space[filled..filled + len].copy_from_slice(&chunk.split_to(len));
            filled += len;
            if !chunk.is_empty() {
                break;
            }
            self.here.pop_front();
        }
        Ok(filled)
    }

    /// Sends and receives of the socket until now, each of up to 64 datagrams.
    fn syscalls(&self) -> u64 {
        let stats = self.connection.stats();
        stats.udp_tx.ios + stats.udp_rx.ios
    }

    fn finish(mut self) -> Result<()> {
        self.runtime.block_on(async {
            if self.accepted {
                self.send.finish()?;
                // Until the initiator has heard it.
                let _ = timeout(STALL, self.connection.closed()).await;
            } else {
                self.connection.close(0u32.into(), b"");
                self.endpoint.wait_idle().await;
            }
            Ok(())
        })
    }
}

/// All of an end runs on the core that it is pinned to.
fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

fn endpoint(runtime: &Runtime, bind: IpAddr, server: Option<ServerConfig>) -> Result<Endpoint> {
    let socket = UdpSocket::bind((bind, 0))?;
    let wide = SockRef::from(&socket);
    if setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BYTES).is_err() {
        wide.set_recv_buffer_size(SOCKET_BYTES)?;
    }
    if setsockopt(&socket, sockopt::SndBufForce, &SOCKET_BYTES).is_err() {
        wide.set_send_buffer_size(SOCKET_BYTES)?;
    }
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(DATAGRAM_MAX_BYTES)?;
    let _inside = runtime.enter();
    Ok(Endpoint::new(
        config,
        server,
        socket,
        Arc::new(TokioRuntime),
    )?)
}

/// The settings of a connection; who sends much knows the size of its datagrams.
fn transport(datagram_bytes: Option<u16>) -> Result<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .stream_receive_window(VarInt::from_u32(WINDOW_BYTES))
        .receive_window(VarInt::from_u32(WINDOW_BYTES))
        .send_window(WINDOW_BYTES.into())
        .max_idle_timeout(Some(IdleTimeout::try_from(STALL)?));
    let mut cubic = CubicConfig::default();
    cubic.initial_window(WINDOW_BYTES.into());
    let mut acknowledgements = AckFrequencyConfig::default();
    acknowledgements.ack_eliciting_threshold(VarInt::from_u32(ACKNOWLEDGED_EVERY));
    config
        .congestion_controller_factory(Arc::new(cubic))
        .ack_frequency_config(Some(acknowledgements));
    if let Some(bytes) = datagram_bytes {
        config.initial_mtu(bytes).mtu_discovery_config(None);
    }
    Ok(config)
}

/// What the path to `to` carries in one datagram, as the kernel knows it.
fn datagram_bytes(to: SocketAddr) -> Result<u16> {
    let (any, overhead): (IpAddr, i32) = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), OVERHEAD_BYTES.0),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), OVERHEAD_BYTES.1),
    };
    let probe = UdpSocket::bind((any, 0))?;
    probe.connect(to)?;
    let mtu = match to {
        SocketAddr::V4(_) => nix::sys::socket::getsockopt(&probe, sockopt::IpMtu)?,
        SocketAddr::V6(_) => 1280,
    };
    Ok(u16::try_from(mtu - overhead)
        .map_or(DATAGRAM_MAX_BYTES, |bytes| bytes.min(DATAGRAM_MAX_BYTES)))
}
