//! The QUIC mover: quinn, AES-128-GCM, one stream, tuned as a good user would.
//!
//! This file has the sockets and their settings, [`mod@memory`] what goes over them.
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

pub(crate) mod memory;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{setsockopt, sockopt};
use quinn::congestion::CubicConfig;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    AckFrequencyConfig, ClientConfig, Connection, Endpoint, EndpointConfig, IdleTimeout,
    RecvStream, SendStream, ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use socket2::SockRef;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::certificate::{self, NAME};
use super::limits::{CONNECT, STALL};

/// Payload that may be under way, and that a sender keeps, bytes.
const WINDOW_BYTES: u32 = 4 << 20;

/// Datagrams for each acknowledgement.
const ACKNOWLEDGED_EVERY: u32 = 10;

/// What both ends ask of their sockets' buffers, bytes.
const SOCKET_BYTES: usize = 8 << 20;

/// Largest datagram that is sent or taken, bytes: what MTU 9000 leaves. quinn has room for 2048 of them.
const DATAGRAM_MAX_BYTES: u16 = 8972;

/// Headers of IPv4 and UDP, bytes; and those of IPv6.
const OVERHEAD_BYTES: (i32, i32) = (28, 48);

/// A port waiting for the sender.
#[derive(Debug)]
pub(crate) struct Listener {
    runtime: Runtime,
    endpoint: Endpoint,
}

impl Listener {
    /// Listens on any free port of `address`.
    pub(crate) fn bind(address: IpAddr) -> Result<Listener> {
        let runtime = runtime()?;
        let crypto = QuicServerConfig::try_from(certificate::server()?)?;
        let mut config = ServerConfig::with_crypto(Arc::new(crypto));
        config.transport_config(Arc::new(transport(None)?));
        let endpoint = endpoint(&runtime, address, Some(config))?;
        Ok(Listener { runtime, endpoint })
    }

    /// The port the sender is to connect to.
    pub(crate) fn port(&self) -> Result<u16> {
        Ok(self.endpoint.local_addr()?.port())
    }

    /// The first connection, which must know the token.
    async fn accept(&self, token: u64) -> Result<Stream> {
        let incoming = timeout(CONNECT, self.endpoint.accept()).await;
        let incoming = incoming.context("no sender connected")?;
        let connection = incoming.context("the endpoint is closed")?.await?;
        let (send, recv) = connection.accept_bi().await?;
        let mut stream = Stream {
            connection,
            send,
            recv,
        };
        let mut told = [0; 8];
        stream.recv.read_exact(&mut told).await?;
        ensure!(
            told == token.to_le_bytes(),
            "the sender does not know the token"
        );
        Ok(stream)
    }
}

/// Connects to the receiver and shows it the token. The endpoint has to live as long as the stream.
async fn open(endpoint: &Endpoint, to: SocketAddr, token: u64) -> Result<Stream> {
    let crypto = QuicClientConfig::try_from(certificate::client()?)?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::new(transport(Some(datagram_bytes(to)?))?));
    let connecting = endpoint.connect_with(config, to, NAME)?;
    let connection = timeout(CONNECT, connecting).await.context("no answer")?;
    let connection =
        connection.with_context(|| format!("cannot connect to the receiver at {to}"))?;
    let (send, recv) = connection.open_bi().await?;
    let mut stream = Stream {
        connection,
        send,
        recv,
    };
    stream.send.write_all(&token.to_le_bytes()).await?;
    Ok(stream)
}

/// One stream both ways.
struct Stream {
    connection: Connection,
    send: SendStream,
    recv: RecvStream,
}

impl Stream {
    async fn say(&mut self, word: u8) -> Result<()> {
        Ok(self.send.write_all(&[word]).await?)
    }

    async fn await_word(&mut self, word: u8) -> Result<()> {
        let mut heard = [0];
        self.recv.read_exact(&mut heard).await?;
        ensure!(
            heard == [word],
            "the receiver said {:?} instead of {:?}",
            heard[0] as char,
            word as char
        );
        Ok(())
    }

    /// Sends and receives of the socket until now, each of up to 64 datagrams.
    fn syscalls(&self) -> u64 {
        let stats = self.connection.stats();
        stats.udp_tx.ios + stats.udp_rx.ios
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
