//! Tests that a receiver schedules several senders without loss.

use crate::drive::{Flag, PATIENCE, receive_all, send_all};
use zerolane::advanced::FastAnswer;
use zerolane::options::{Schedule, Scheduler};
use zerolane::{Connection, Endpoint, Options, Region};

const SENDERS: u64 = 5;

fn scheduled(schedule: Schedule) -> Options {
    Options::default().with(|it| it.rate.scheduler = Some(Scheduler::new(schedule)))
}

/// Connects `SENDERS` senders to an endpoint with `options`; `send` and `receive` run for each, in threads of their
/// own. The first byte sent is the sender's number. A sender may drop its connection.
fn run(
    options: Options,
    send: impl Fn(u64, Connection) -> Option<Connection> + Sync,
    receive: impl Fn(u64, &mut Connection) + Sync,
) {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options).expect("bind");
    let to = endpoint.local_addr();
    let (send, receive) = (&send, &receive);
    let done: Vec<[Flag; 2]> = (0..SENDERS).map(|_| Default::default()).collect();
    let done = &done;
    std::thread::scope(|scope| {
        for number in 0..SENDERS {
            scope.spawn(move || {
                let [mine, other] = &done[number as usize];
                let _raised = mine.raise_at_end();
                let made = Connection::connect(to, &Options::default());
                let mut connection = made.expect("connect");
                connection.send(&[number as u8]).expect("sent");
                if let Some(mut connection) = send(number, connection) {
                    other.drive_until_raised(&mut connection);
                }
            });
        }
        for _ in 0..SENDERS {
            let accepted = endpoint.accept(Some(PATIENCE)).expect("accept");
            let mut connection = accepted.expect("a client connects");
            scope.spawn(move || {
                let mut number = [0];
                connection.recv_into(&mut number).expect("number");
                let number = u64::from(number[0]);
                let [other, mine] = &done[number as usize];
                let raised = mine.raise_at_end();
                receive(number, &mut connection);
                drop(raised);
                other.drive_until_raised(&mut connection);
            });
        }
    });
}

fn all(number: u64, mut connection: Connection, lengths: &[usize]) -> Option<Connection> {
    send_all(&mut connection, 100 * number, lengths);
    Some(connection)
}

#[test]
fn schedules__everybody_gets_everything() {
    let lengths = [3 << 20, 1, 0, 200_000, 1 << 20];
    for schedule in [
        Schedule::Automatic,
        Schedule::Fair,
        Schedule::Fast,
        Schedule::Shortest,
    ] {
        run(
            scheduled(schedule),
            |number, connection| all(number, connection, &lengths),
            |number, connection| {
                connection.set_weight(number as u32);
                receive_all(connection, 100 * number, &lengths);
            },
        );
    }
}

#[test]
fn schedules__a_sender_that_vanishes_keeps_nothing() {
    let lengths = [4 << 20; 4];
    run(
        Options::default(),
        |number, mut connection| {
            if number > 0 {
                return all(number, connection, &lengths);
            }
            let region = Region::anonymous(4 << 20).expect("memory");
            connection.post_send(region).expect("posted");
            connection.poll().expect("connected");
            // Dropped while it had grants.
            None
        },
        |number, connection| {
            if number == 0 {
                let region = Region::anonymous(4 << 20).expect("memory");
                connection.post_recv(region).expect("posted");
                let gone = connection.wait(Some(PATIENCE)).expect("a completion").got();
                assert!(gone.expect("no timeout").result.is_err());
            } else {
                receive_all(connection, 100 * number, &lengths);
            }
        },
    );
}

#[test]
fn request_fast__while_others_receive() {
    let lengths = [2 << 20; 4];
    run(
        scheduled(Schedule::Fair),
        |number, connection| all(number, connection, &lengths),
        |number, connection| {
            let answer = connection.request_fast();
            assert!(matches!(answer, FastAnswer::Granted | FastAnswer::Refused));
            receive_all(connection, 100 * number, &lengths);
        },
    );
}

#[test]
fn scheduler__shared_by_connections_opened_here() {
    let options = scheduled(Schedule::Fair);
    let lengths = [1 << 20; 4];
    std::thread::scope(|scope| {
        for seed in [1000, 2000, 3000] {
            let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default()).expect("bind");
            let (to, options) = (endpoint.local_addr(), &options);
            scope.spawn(move || {
                let accepted = endpoint.accept(Some(PATIENCE)).expect("accept");
                let mut connection = accepted.expect("a client connects");
                send_all(&mut connection, seed, &lengths);
                connection.close().expect("closed");
            });
            scope.spawn(move || {
                let mut connection = Connection::connect(to, options).expect("connect");
                receive_all(&mut connection, seed, &lengths);
                connection.close().expect("closed");
            });
        }
    });
}
