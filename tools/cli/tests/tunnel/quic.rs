//! Tests QUIC inside a tunnel, by quinn: its datagrams are sent and received uncut where the kernel can.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use netlab::netns::Namespace;
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, ReadExactError, ServerConfig, TokioRuntime,
};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::content::content;
use crate::lab::{Lab, Outside, PATIENCE, inside};

/// Bytes each way: thousands of datagrams.
const STREAM: usize = 4 << 20;

/// The name in the certificate.
const NAME: &str = "inside.example";

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// An end at `address` of `host`.
fn socket(host: &Namespace, address: IpAddr) -> UdpSocket {
    let at = SocketAddr::new(address, 0);
    host.enter_thread(|| UdpSocket::bind(at).unwrap()).unwrap()
}

fn endpoint(socket: UdpSocket, server: Option<ServerConfig>) -> Endpoint {
    let config = EndpointConfig::default();
    Endpoint::new(config, server, socket, Arc::new(TokioRuntime)).unwrap()
}

/// Sends content on a stream of this end, and checks that of the peer's stream.
async fn exchange(connection: &Connection, sends: u64, expects: u64) {
    let send = async {
        let mut stream = connection.open_uni().await.unwrap();
        stream.write_all(&content(sends, STREAM)).await.unwrap();
        stream.finish().unwrap();
        // Until the peer has it.
        stream.stopped().await.unwrap();
    };
    let receive = async {
        let mut stream = connection.accept_uni().await.unwrap();
        let mut came = vec![0; STREAM];
        stream.read_exact(&mut came).await.unwrap();
        assert!(came == content(expects, STREAM), "other bytes");
        let more = stream.read_exact(&mut [0]).await;
        assert!(matches!(more, Err(ReadExactError::FinishedEarly(0))));
    };
    let both = async { tokio::join!(send, receive) };
    timeout(PATIENCE, both).await.expect("the streams end");
}

/// A certificate for [`NAME`], and what the two ends make of it.
fn configs() -> (ServerConfig, ClientConfig) {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let certificate: CertificateDer<'static> = made.cert.der().clone();
    let server = ServerConfig::with_single_cert(vec![certificate.clone()], key.into()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
    (server, client)
}

#[test]
fn up__quic_inside() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    for words in [&[][..], &["--no-offload"]] {
        let ends = lab.both(words);
        for family in [0, 1] {
            let (server, client) = configs();
            let called = socket(a, inside(1)[family]);
            let calling = socket(b, inside(2)[family]);
            let address = called.local_addr().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    runtime().block_on(async {
                        let endpoint = endpoint(called, Some(server));
                        let incoming = timeout(PATIENCE, endpoint.accept()).await;
                        let connection = incoming.expect("a call").unwrap().await.unwrap();
                        exchange(&connection, 1, 2).await;
                        // Tells the other end that it may close.
                        let mut done = connection.open_uni().await.unwrap();
                        done.finish().unwrap();
                        connection.closed().await;
                    });
                });
                runtime().block_on(async {
                    let endpoint = endpoint(calling, None);
                    let connecting = endpoint.connect_with(client, address, NAME).unwrap();
                    let connection = timeout(PATIENCE, connecting).await.expect("an answer");
                    let connection = connection.unwrap();
                    exchange(&connection, 2, 1).await;
                    let done = timeout(PATIENCE, connection.accept_uni()).await;
                    done.expect("the end").unwrap();
                    connection.close(0u32.into(), b"");
                    endpoint.wait_idle().await;
                });
            });
        }
        for host in [a, b] {
            assert_eq!(lab.counter(host, "dropped_malformed"), 0);
            assert_eq!(lab.counter(host, "dropped_by_host"), 0);
        }
        drop(ends);
    }
}
