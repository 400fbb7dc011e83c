//! Tests that peers with incompatible options get the reason of the refusal.

use super::{Only, identity, options, serve};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zerolane::failure::{CloseReason, Reason};
use zerolane::security::Cipher;
use zerolane::{Connection, Endpoint, Error, Options, Security};

/// The result of a client with `client` at a server with `server`, which does not accept it.
fn outcome(client: &Options, server: Security) -> zerolane::Result<Connection> {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options(server)).unwrap();
    let address = endpoint.local_addr();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let a_while = Some(Duration::from_millis(100));
            while !over.load(Ordering::Relaxed) {
                if let Some(accepted) = endpoint.accept(a_while).unwrap() {
                    return Some(accepted);
                }
            }
            // The client's last packet is received, too.
            endpoint.accept(a_while).unwrap()
        });
        let outcome = Connection::connect(address, client);
        over.store(true, Ordering::Relaxed);
        let accepted = accepted.join().unwrap();
        assert!(accepted.is_none(), "the server has a connection of it");
        outcome
    })
}

/// Why a client with `client` cannot connect to a server with `server`.
fn refused(client: Security, server: Security) -> CloseReason {
    match outcome(&options(client), server) {
        Err(Error::Closed(reason)) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

fn rejected(reason: CloseReason) -> Reason {
    match reason {
        CloseReason::Rejected { reason, .. } | CloseReason::ExchangeRefused(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn plain__only_if_both_ask() {
    let (plain, encrypted) = (Security::plain, Security::default);
    assert_eq!(
        rejected(refused(plain(), encrypted())),
        Reason::ProtectionRequired
    );
    assert_eq!(rejected(refused(encrypted(), plain())), Reason::PlainOnly);
}

#[test]
fn authenticated__only_if_both_ask() {
    for (client, server) in [
        (Security::authenticated(), Security::default()),
        (Security::default(), Security::authenticated()),
    ] {
        assert_eq!(rejected(refused(client, server)), Reason::OtherProtection);
    }
    let refused = |client, server| rejected(refused(client, server));
    let (plain, authenticated) = (Security::plain, Security::authenticated);
    assert_eq!(
        refused(plain(), authenticated()),
        Reason::ProtectionRequired
    );
    assert_eq!(refused(authenticated(), plain()), Reason::PlainOnly);
}

#[test]
fn cipher__of_another_mode_is_refused_here() {
    for (cipher, other) in [
        (Cipher::Aegis128X2Mac, Security::default()),
        (Cipher::Aes128Gcm, Security::authenticated()),
        (Cipher::Aes128Gcm, Security::plain()),
    ] {
        let security = Security {
            cipher: Some(cipher),
            ..other
        };
        let closed: std::net::SocketAddr = "127.0.0.1:9".parse().unwrap();
        let error = Connection::connect(closed, &options(security)).unwrap_err();
        let Error::Io(error) = error else {
            panic!("{error:?}");
        };
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(cipher.name()), "{error}");
    }
}

#[test]
fn trust__a_client_that_is_not_allowed_is_told_so() {
    let server = Security {
        trust: Arc::new(Only(identity(1).public())),
        ..Security::default()
    };
    let client = Security {
        identity: Some(identity(2)),
        ..Security::default()
    };
    assert_eq!(rejected(refused(client, server)), Reason::Denied);
}

#[test]
fn trust__a_server_that_is_not_the_right_one_is_named() {
    let server = Security {
        identity: Some(identity(3)),
        ..Security::default()
    };
    let client = Security {
        trust: Arc::new(Only(identity(1).public())),
        ..Security::default()
    };
    let reason = refused(client, server);
    assert_eq!(reason, CloseReason::Untrusted(identity(3).public().0));
}

#[test]
fn trust__both_know_each_other() {
    let end = |own: u8, other: u8| Security {
        identity: Some(identity(own)),
        trust: Arc::new(Only(identity(other).public())),
        ..Security::default()
    };
    let (address, server) = serve(end(1, 2), |connection| {
        let mut connection = connection.expect("a client");
        let mut word = [0; 5];
        connection.recv_into(&mut word).unwrap();
        (connection.peer_key(), word)
    });
    let mut client = Connection::connect(address, &options(end(2, 1))).unwrap();
    assert_eq!(client.peer_key(), Some(identity(1).public()));
    client.send(b"hello").unwrap();
    let known = server.join().unwrap();
    assert_eq!(known, (Some(identity(2).public()), *b"hello"));
}

#[test]
fn pre_shared__a_wrong_one_gets_no_connection() {
    let with = |key: u8| Security {
        pre_shared: Some([key; 32].into()),
        ..Security::default()
    };
    let hasty = options(with(2)).with(|it| it.times.connect = Duration::from_secs(3));
    let outcome = outcome(&hasty, with(1));
    assert!(
        matches!(outcome, Err(Error::ConnectTimeout(_))),
        "{outcome:?}"
    );
}
