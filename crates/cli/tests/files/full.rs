//! A server that has as many connections from one address as it may have.

use std::fs;
use std::process::Stdio;

use super::lab::*;

/// Connections that a server has for clients of one address.
const OF_ADDRESS: usize = 24;

#[test]
fn ls__a_full_server_says_busy_until_a_client_goes() {
    let lab = Lab::new(&[]);
    fs::write(lab.share("a"), content(1, 8 * MIB)).unwrap();
    let list = || {
        let mut ls = zerolane();
        ls.arg("ls").arg(lab.there(""));
        ls
    };
    // Each takes minutes.
    let clients = (0..OF_ADDRESS).map(|client| {
        let mut slow = lab.get(&["--limit", "16KiB/s"], "a", &client.to_string());
        let quiet = slow.stdout(Stdio::null()).stderr(Stdio::null());
        Running(quiet.spawn().unwrap())
    });
    let mut clients: Vec<_> = clients.collect();
    let local = lab.local("");
    eventually("all of them receive", || {
        let receives = |client: usize| part(&local, &client.to_string()).is_some();
        (0..OF_ADDRESS).all(receives).then_some(())
    });
    fail(list(), 8, "the peer is at its limit");
    // Not even one that goes on when its connection breaks waits for the first.
    fail(lab.get(&[], "a", "last"), 8, "the peer is at its limit");
    for client in &mut clients {
        assert_eq!(client.0.try_wait().unwrap(), None, "one was turned away");
    }
    drop(clients);
    eventually("there is a place again", || {
        (run(list()).0 == 0).then_some(())
    });
}
