//! A source, by hand, that a host loses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Channel, channel};
use std::time::Duration;

use zerolane::security::Anyone;
use zerolane::{Connection, Endpoint, Options};

use super::group::{Group, hear, receiver, word};
use crate::drive::Membership;
use crate::invitation::{Call, Form, Word};
use crate::{Error, Received};

/// Longer than a test lasts: nothing comes of it by itself.
const EVER: Duration = Duration::from_secs(3600);

struct Source {
    membership: Membership,
    /// Where it listens for nodes.
    endpoint: Endpoint,
}

impl Source {
    fn new() -> Source {
        let membership = Membership::new([5; 32], Options::default()).unwrap();
        let options = membership.options(Arc::new(Anyone));
        let endpoint = Endpoint::bind("127.0.0.1:0", options).unwrap();
        Source {
            membership,
            endpoint,
        }
    }

    /// Calls a host, which takes part.
    fn call(&self, host: SocketAddr) -> Connection {
        // The key alone: a host that waits knows no secret.
        let mut options = self.membership.options(Arc::new(Anyone));
        options.security.pre_shared = None;
        let mut connection = Connection::connect(host, &options).unwrap();
        let offer = Call::Offer {
            name: "source".into(),
            form: Form::Bytes,
            bytes: 1000,
        };
        connection.send(&word(&offer)).unwrap();
        assert!(matches!(hear(&mut connection), Word::Joins(_)));
        let group = Call::Group {
            secret: self.membership.secret,
            key: self.membership.identity.public().0,
            port: self.endpoint.local_addr().port(),
            rack: 0,
        };
        connection.send(&word(&group)).unwrap();
        connection
    }
}

/// A host that takes none for dead, and what becomes of it.
fn host(group: &Group) -> (SocketAddr, Channel<Result<Received, Error>>) {
    let host = receiver("127.0.0.1:0".parse().unwrap(), group.to(0));
    let host = host.with_silence(EVER).with_patience(EVER);
    let (address, (told, ended)) = (host.local_addr(), channel());
    std::thread::spawn(move || told.send(host.run(&|| false, &mut |_| {})));
    (address, ended)
}

/// By itself it would try again at its next beat, minutes later.
#[test]
fn host__that_is_called_again_reaches_its_source_at_once() {
    let group = Group::new();
    let mut source = Source::new();
    let (address, ended) = host(&group);
    let first = source.call(address);
    let node = source.endpoint.accept(Some(Duration::from_secs(60)));
    // The node loses its source, which calls until it has it again: the end of a connection may come late.
    drop(node.unwrap().expect("it takes part"));
    let mut calls = Vec::from([first]);
    while calls.len() < 30 {
        calls.push(source.call(address));
        let node = source.endpoint.accept(Some(Duration::from_secs(1)));
        if node.unwrap().is_some() {
            let mut last = calls.pop().unwrap();
            last.send(&word(&Call::Aborted("enough".into()))).unwrap();
            assert!(matches!(hear(&mut last), Word::Ended(Err(_))));
            drop(last);
            let ended = ended.recv_timeout(Duration::from_secs(60)).unwrap();
            assert!(matches!(&ended, Err(Error::Aborted(why)) if why == "enough"));
            return;
        }
    }
    panic!("it was called {} times", calls.len());
}
