//! Tests that connections survive changes of the interfaces of two veth pairs.

use super::{
    THREADS, between, joins_in_turn, options, path_between, receive, send, two_pairs, until_lost,
    until_usable,
};
use netlab::netns::Topology;
use netsim::Side;
use zerolane::options::PathThreads;
use zerolane::{Connection, Security};

/// Streams over two paths. When both carry payload, `happen` changes the network of the path with this index. The
/// stream continues over the other, and then over `then` paths. The receiver checks every byte.
fn stream_while(
    path: usize,
    then: usize,
    happen: impl Fn(&Topology) + Sync,
    mend: impl Fn(&Topology) + Sync,
) {
    for threads in THREADS {
        stream_by(threads, path, then, &happen, &mend);
    }
}

fn stream_by(
    threads: PathThreads,
    path: usize,
    then: usize,
    happen: &(impl Fn(&Topology) + Sync),
    mend: &(impl Fn(&Topology) + Sync),
) {
    let Some(hosts) = two_pairs() else { return };
    let options = options(Security::default(), 2, threads);
    let (sent, received) = between((hosts.a(), hosts.b()), &options, receive, |to, second| {
        let mut a = Connection::connect(to, &options).expect("connected");
        assert!(a.add_path(second));
        let mut sent = 0;
        until_usable(&mut a, 2, 8, &mut sent);
        happen(&hosts);
        if then < 2 {
            until_lost(&mut a, 8, &mut sent);
        }
        mend(&hosts);
        until_usable(&mut a, then, 8, &mut sent);
        a.close().expect("closed");
        sent
    });
    assert_eq!(sent, received, "path {path}");
}

#[test]
fn veth__two_pairs_carry_and_a_path_leaves_and_joins() {
    let all = THREADS.map(|threads| {
        [Security::default(), Security::plain()].map(|security| (threads, security))
    });
    for (threads, security) in all.into_iter().flatten() {
        let Some(hosts) = two_pairs() else { return };
        let options = options(security, 4, threads);
        let (sent, received) = between((hosts.a(), hosts.b()), &options, receive, |to, second| {
            let mut a = Connection::connect(to, &options).expect("connected");
            // A third path between the interfaces of the first, from another port.
            let third = path_between(hosts.a(), hosts.b(), 0, to.port());
            let sent = send(&mut a, joins_in_turn(&[&[second], &[second, third]]));
            assert_eq!(a.account().paths_refused, 0);
            a.close().expect("closed");
            sent
        });
        assert_eq!(sent, received);
    }
}

#[test]
fn links__of_the_options_are_there_from_the_start() {
    let Some(hosts) = two_pairs() else { return };
    let options = options(Security::default(), 2, PathThreads::OneForAll);
    let (sent, received) = between((hosts.a(), hosts.b()), &options, receive, |to, second| {
        let options = options.clone().with(|it| {
            it.paths.most = 1;
            it.paths.links = vec![second];
        });
        let mut a = Connection::connect(to, &options).expect("connected");
        let mut sent = 0;
        until_usable(&mut a, 2, 8, &mut sent);
        a.close().expect("closed");
        sent
    });
    assert_eq!(sent, received);
}

#[test]
fn interface__down_amid_and_up_again() {
    for path in [0, 1] {
        for side in Side::BOTH {
            stream_while(
                path,
                2,
                |hosts| hosts.side(side).set_up(path, false).expect("set"),
                |hosts| hosts.side(side).set_up(path, true).expect("set"),
            );
        }
    }
}

#[test]
fn interface__deleted_amid() {
    for path in [0, 1] {
        let delete = |hosts: &Topology| hosts.a().delete(path).expect("deleted");
        stream_while(path, 1, delete, |_| {});
    }
}

#[test]
fn interface__renamed_amid() {
    for path in [0, 1] {
        let rename = |hosts: &Topology| hosts.b().rename(path, "other").expect("renamed");
        stream_while(path, 2, rename, |_| {});
    }
}
