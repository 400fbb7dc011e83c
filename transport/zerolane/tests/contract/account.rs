//! Tests that a connection's account is JSON that others read.

use super::{PATIENCE, pair_by};
use serde_json::Value;
use zerolane::Region;
use zerolane::options::LaneChoice;

#[test]
fn json__is_read_back_as_what_the_account_has() {
    for (lane, name) in [
        (LaneChoice::Udp, "udp"),
        (LaneChoice::default(), "shared_memory"),
    ] {
        let (mut ours, mut theirs) = pair_by(lane);
        theirs
            .post_recv(Region::anonymous(100_000).expect("memory"))
            .expect("posted");
        ours.set_timeout(Some(PATIENCE));
        let sending = std::thread::spawn(move || {
            ours.send(&vec![7; 100_000]).expect("sent");
            ours
        });
        let received = theirs.wait(Some(PATIENCE)).expect("no error");
        received.got().expect("in time").result.expect("received");
        let account = theirs.account();
        let json: Value = serde_json::from_str(&account.json()).expect("JSON");
        assert_eq!(json["lane"], name);
        assert_eq!(json["datagrams_received"], account.datagrams_received);
        assert_eq!(json["receive_buffer"], account.receive_buffer);
        assert_eq!(json["bytes_moved"], account.bytes_moved());
        assert_eq!(json["path"]["controller"], account.path.controller);
        let received = &json["protocol"]["bytes_received"];
        assert_eq!(*received, account.protocol.bytes_received);
        let moved = json["moved"].as_object().expect("an object");
        let sum: u64 = moved.values().filter_map(Value::as_u64).sum();
        assert_eq!(sum, account.bytes_moved());
        drop(sending.join().expect("no panic"));
    }
}
