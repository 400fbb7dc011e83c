#![allow(non_snake_case)]
use super::*;
use crate::Options;
use crate::options::LaneChoice;
use crate::request::Message;

const PATIENCE: Duration = Duration::from_secs(20);

/// Lets `worker` sleep, once it has nothing to do.
fn sleep(worker: &mut Worker) {
    let end = Instant::now() + PATIENCE;
    while !worker.arm().expect("allowed") {
        assert!(Instant::now() < end, "always busy");
        while worker.next_event().is_some() {}
        worker.progress().expect("allowed");
    }
}

/// What a connection holds back must not wait for a timer, after the first sleep either.
#[test]
fn arm__flushes_before_each_sleep_what_moved_since_the_last() {
    let options = Options::default().with(|it| it.lane.choice = LaneChoice::Udp);
    let mut worker = Worker::new().expect("descriptors");
    let endpoint = worker.listen("127.0.0.1:0", options.clone());
    let endpoint = worker.endpoint(endpoint.expect("a port"));
    let address = endpoint.expect("it listens").local_addr();
    let id = worker.connect(address, &options).expect("a route");
    for round in 0..3 {
        let connection = worker.connection(id).expect("not over");
        connection.post(Message::new(b"moves")).expect("posted");
        let end = Instant::now() + PATIENCE;
        while worker.agenda.len(Due::Flush) == 0 {
            assert!(Instant::now() < end, "round {round}");
            worker.progress().expect("allowed");
        }
        sleep(&mut worker);
        assert_eq!(worker.agenda.len(Due::Flush), 0, "round {round}");
    }
}
