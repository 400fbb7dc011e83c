//! Streams pieces over several paths and checks every byte.

use std::time::{Duration, Instant};
use zerolane::counters::{PathLife, PathState};
use zerolane::options::{PathAddresses, PathThreads};
use zerolane::{Connection, Endpoint, Options, PathId, Security};

/// Bounds how long a failure takes to show; otherwise never reached.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Pieces that a stream may take for a step even if they take longer than [`PATIENCE`], as on a busy machine.
const ENOUGH: usize = 256;
pub(crate) const PIECE: usize = 1 << 20;
/// The first path that is added.
pub(crate) const ADDED: PathId = PathId::new(1).expect("few");

/// The threads of paths: every test runs with both.
pub(crate) const THREADS: [PathThreads; 2] = [PathThreads::OneForAll, PathThreads::OnePerPath];

pub(crate) fn options(security: Security, paths: u8, path_threads: PathThreads) -> Options {
    Options::default().with(|it| {
        it.security = security;
        it.paths.most = paths;
        it.paths.threads = path_threads;
        it.times.connect = PATIENCE;
        it.times.idle = PATIENCE;
    })
}

pub(crate) fn content(piece: usize) -> Vec<u8> {
    crate::bytes::content(piece as u64, PIECE)
}

pub(crate) fn accept(endpoint: &mut Endpoint) -> Connection {
    let accepted = endpoint.accept(Some(PATIENCE)).expect("accept");
    accepted.expect("a client")
}

/// Receives pieces in order and checks every byte, until the peer closes; returns how many.
pub(crate) fn receive(endpoint: &mut Endpoint) -> usize {
    let mut connection = accept(endpoint);
    let mut buffer = vec![0; PIECE];
    let mut pieces = 0;
    while let Ok(len) = connection.recv_into(&mut buffer) {
        assert_eq!(len, PIECE);
        assert!(buffer == content(pieces), "piece {pieces}");
        pieces += 1;
    }
    pieces
}

fn is_usable((_, state): &(PathId, PathState)) -> bool {
    state.life == PathLife::Usable
}

pub(crate) fn usable(connection: &Connection) -> usize {
    let paths = connection.paths();
    paths.iter().filter(|it| is_usable(it)).count()
}

/// Fails if a step that began at `start` takes too long and too many pieces.
pub(crate) fn assert_in_time(connection: &Connection, start: Instant, pieces: usize) {
    let late = start.elapsed() > PATIENCE && pieces > ENOUGH;
    assert!(!late, "{pieces} pieces, {:?}", connection.paths());
}

/// Sends pieces until `done` returns true; returns how many. `done` is called for every piece.
pub(crate) fn send(
    connection: &mut Connection,
    mut done: impl FnMut(&mut Connection, usize) -> bool,
) -> usize {
    let start = Instant::now();
    let mut pieces = 0;
    while !done(connection, pieces) {
        assert_in_time(connection, start, pieces);
        connection.send(&content(pieces)).expect("sent");
        pieces += 1;
    }
    pieces
}

/// An argument for [`send`]: adds each of `turns` to the first path in turn, and removes path 1 between them, once that
/// and the first carry payload. Ends 8 pieces after the last turn.
pub(crate) fn joins_in_turn<'a>(
    turns: &'a [&'a [PathAddresses]],
) -> impl FnMut(&mut Connection, usize) -> bool + 'a {
    let carry = |a: &Connection| bytes_sent(a, 0).min(bytes_sent(a, 1)) > 4 << 20;
    // The current turn, since when its paths exist, and when the next step follows.
    let (mut turn, mut joined, mut next) = (0, false, 4);
    move |a, pieces| {
        if pieces < next {
            return false;
        }
        let Some(paths) = turns.get(turn) else {
            return true;
        };
        if !joined {
            assert_eq!(usable(a), 1);
            for &path in *paths {
                assert!(a.add_path(path));
            }
            joined = true;
        } else if usable(a) == 1 + paths.len() && carry(a) {
            (turn, joined, next) = (turn + 1, false, pieces + 9);
            if turn < turns.len() {
                a.remove_path(ADDED);
            }
        }
        false
    }
}

pub(crate) fn bytes_sent(connection: &Connection, path: usize) -> u64 {
    let paths = connection.paths();
    let found = paths.iter().find(|it| usize::from(it.0.get()) == path);
    found.map_or(0, |it| it.1.bytes_sent)
}

/// Sends until as many more pieces have been sent while that many paths were usable; stores the total number of pieces.
pub(crate) fn until_usable(
    connection: &mut Connection,
    paths: usize,
    more: usize,
    sent: &mut usize,
) {
    until(connection, more, sent, |it| usable(it) == paths);
}

/// [`until_usable`] with one path, after another was counted as lost.
pub(crate) fn until_lost(connection: &mut Connection, more: usize, sent: &mut usize) {
    until(connection, more, sent, |it| {
        usable(it) == 1 && it.account().protocol.paths_lost > 0
    });
}

/// [`until_usable`] with `path` alone.
pub(crate) fn until_alone(connection: &mut Connection, path: usize, more: usize, sent: &mut usize) {
    until(connection, more, sent, |it| {
        let paths = it.paths();
        let is_it = |it: PathId| usize::from(it.get()) == path;
        paths.iter().all(|it| is_usable(it) == is_it(it.0))
    });
}

fn until(
    connection: &mut Connection,
    more: usize,
    sent: &mut usize,
    holds: impl Fn(&Connection) -> bool,
) {
    let start = Instant::now();
    let before = *sent;
    // On a busy machine a path is silent, and not usable, for a moment now and then: the pieces need not follow each
    // other.
    let mut left = more;
    while left > 0 {
        assert_in_time(connection, start, *sent - before);
        connection.send(&content(*sent)).expect("sent");
        *sent += 1;
        left -= usize::from(holds(connection));
    }
}
