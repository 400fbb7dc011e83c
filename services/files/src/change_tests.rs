//! Tests that a client handles a server that ends in the middle of a request, or lies.

#![allow(non_snake_case)]

use crate::client::{Changes, Client};
use crate::error::{Error, Refusal};
use crate::location::Host;
use crate::message::{RemoveOptions, Reply, Request};
use crate::opening::{hear, say};
use crate::stop::Stop;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;
use zerolane::{Endpoint, Options};

const LONG: Duration = Duration::from_secs(20);

/// The result of a removal at a server that sends these replies and then closes the connection.
fn answered(replies: Vec<Reply>) -> Result<Changes, Error> {
    let mut endpoint = Endpoint::bind((Ipv4Addr::LOCALHOST, 0), Options::default()).unwrap();
    let address = endpoint.local_addr();
    let server = thread::spawn(move || {
        let mut connection = endpoint.accept(Some(LONG)).unwrap().unwrap();
        let stop = Stop::default();
        let request: Request = hear(&mut connection, &stop, LONG).unwrap();
        assert!(matches!(request, Request::Delete { .. }));
        for reply in replies {
            say(&mut connection, &reply, &stop, LONG).unwrap();
        }
        let _ = connection.close();
    });
    let client = Client::new(Host::from(address));
    let removed = client.remove(&[b"x".to_vec()], RemoveOptions::default(), &());
    server.join().unwrap();
    removed
}

fn done(done: u64, last: bool) -> Reply {
    Reply::Done {
        backed_up: 0,
        done,
        failures: Vec::new(),
        last,
    }
}

#[test]
fn remove__says_whether_anything_may_be_done_when_the_server_goes() {
    assert!(matches!(answered(vec![]), Err(Error::Transport(_))));
    for replies in [vec![done(0, false)], vec![done(0, false), done(7, false)]] {
        let error = answered(replies).unwrap_err();
        assert!(matches!(error, Error::Unanswered { .. }), "{error}");
        assert!(
            error
                .to_string()
                .contains("how much of it was done is unknown")
        );
    }
    let changes = answered(vec![done(0, false), done(7, false), done(2, true)]).unwrap();
    assert_eq!((changes.done, changes.failed), (9, 0));
}

#[test]
fn remove__refused_or_answered_out_of_turn() {
    let refused = answered(vec![Reply::Refused(Refusal::ReadOnly)]);
    assert!(matches!(refused, Err(Error::Refused(Refusal::ReadOnly))));
    assert!(matches!(
        answered(vec![done(0, true)]),
        Err(Error::Protocol(_))
    ));
}
