//! Tests that two people with a code exchange files, and others cannot.

#![allow(non_snake_case)]
use super::*;
use crate::error::{Cause, Failure, Refusal};
use crate::filter::Filter;
use crate::location::Host;
use crate::message::{CopyOptions, ListOptions, RemoveOptions, Replace};
use crate::observe::Observer;
use crate::stop::Stop;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Mutex;

/// Files to offer, and a directory to receive into.
fn places(names: &[&str]) -> (tempfile::TempDir, Vec<PathBuf>, PathBuf) {
    let base = tempfile::tempdir().unwrap();
    let (from, to) = (base.path().join("from"), base.path().join("to"));
    fs::create_dir(&from).unwrap();
    fs::create_dir(&to).unwrap();
    for name in names {
        fs::write(from.join(name), format!("new {name}")).unwrap();
    }
    let sources = names.iter().map(|name| from.join(name)).collect();
    (base, sources, to)
}

/// Lets `receiver` meet a sender of `sources`, over loopback.
fn transfer(sources: Vec<PathBuf>, receiver: impl FnOnce(FoundSender)) {
    transfer_filtered((sources, Filter::default()), receiver);
}

fn transfer_filtered(offered: (Vec<PathBuf>, Filter), receiver: impl FnOnce(FoundSender)) {
    let local = (Ipv4Addr::LOCALHOST, 0).into();
    let lo = ["lo".to_owned()];
    let options = Options::default();
    let invitation = Invitation::new(offered, local, &lo, options.clone()).unwrap();
    let (code, at) = (invitation.code().clone(), invitation.local_addr());
    let stop = Stop::default();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut server = invitation.wait(&stop, |_| panic!("a wrong code")).unwrap();
            server.run(&stop, &()).unwrap();
        });
        let host = Host::from(at);
        let sender = FoundSender::find(&code, &SearchScope::Host(host), &options, &stop).unwrap();
        let received = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| receiver(sender)));
        stop.request();
        sending.join().unwrap();
        received.unwrap();
    });
}

#[test]
fn FoundSender__a_name_that_came_after_the_offer_stays() {
    let (_base, sources, to) = places(&["a", "b"]);
    fs::create_dir(to.join("a")).unwrap();
    transfer(sources, |sender| {
        let options = CopyOptions::default();
        let patience = Duration::ZERO;
        assert_eq!((sender.offer().files, sender.offer().bytes), (2, 10));
        let totals = sender.receive(&to, &options, false, patience, &()).unwrap();
        assert_eq!((totals.files, totals.failed), (1, 1));
        assert!(to.join("a").is_dir());
        assert_eq!(fs::read(to.join("b")).unwrap(), b"new b");
        // By now both exist.
        let totals = sender.receive(&to, &options, false, patience, &()).unwrap();
        assert_eq!((totals.files, totals.failed), (0, 2));
        fs::remove_dir(to.join("a")).unwrap();
        let totals = sender.receive(&to, &options, true, patience, &()).unwrap();
        assert_eq!((totals.files, totals.failed), (2, 0));
    });
}

#[test]
fn FoundSender__nothing_comes_that_was_not_offered() {
    struct Told(Mutex<Vec<Failure>>);
    impl Observer for Told {
        fn failed(&self, failure: &Failure) {
            self.0.lock().unwrap().push(failure.clone());
        }
    }
    let (_base, sources, to) = places(&["a", ".profile"]);
    fs::write(to.join(".profile"), b"old").unwrap();
    transfer(sources, |mut sender| {
        sender.offer.entries.retain(|it| it.name == b"a");
        for overwrite in [false, true] {
            let told = Told(Mutex::default());
            let options = CopyOptions::default();
            let totals = sender
                .receive(&to, &options, overwrite, Duration::ZERO, &told)
                .unwrap();
            assert_eq!((totals.files, totals.failed), (1, 1));
            let told = told.0.into_inner().unwrap();
            assert_eq!(told, [Failure::new(b".profile", Cause::NotOffered)]);
            assert_eq!(fs::read(to.join(".profile")).unwrap(), b"old");
            fs::remove_file(to.join("a")).unwrap();
        }
    });
}

#[test]
fn FoundSender__a_directory_that_stands_for_what_is_in_it_is_offered_as_that() {
    let (base, _, to) = places(&["a", "b"]);
    let contents = base.path().join("from/.");
    fs::create_dir(contents.join("d")).unwrap();
    fs::write(contents.join("d/c"), b"c").unwrap();
    transfer(vec![contents], |sender| {
        let entries = &sender.offer().entries;
        let mut names: Vec<_> = entries.iter().map(|it| (&it.name[..], it.size)).collect();
        names.sort();
        assert_eq!(names, [(&b"a"[..], 5), (b"b", 5), (b"d", 1)]);
        let options = CopyOptions {
            recursive: true,
            ..CopyOptions::default()
        };
        let totals = sender.receive(&to, &options, false, Duration::ZERO, &());
        let totals = totals.unwrap();
        assert_eq!((totals.files, totals.failed), (3, 0));
        assert_eq!(fs::read(to.join("d/c")).unwrap(), b"c");
    });
}

#[test]
fn FoundSender__what_a_filter_leaves_alone_is_neither_offered_nor_sent() {
    let (base, mut sources, to) = places(&["a", "b.o", "c"]);
    let directory = base.path().join("from/d");
    fs::create_dir(&directory).unwrap();
    for (name, content) in [("x.o", "x"), ("y", "yy"), (".f", "- z"), ("z", "zzz")] {
        fs::write(directory.join(name), content).unwrap();
    }
    sources.push(directory);
    let mut filter = Filter::default();
    for rule in [&b"- *.o"[..], b"- /c", b":e .f"] {
        filter.add(rule).unwrap();
    }
    transfer_filtered((sources, filter), |sender| {
        let offer = sender.offer();
        let names: Vec<_> = offer
            .entries
            .iter()
            .map(|it| (&it.name[..], it.size))
            .collect();
        assert_eq!(names, [(&b"a"[..], 5), (b"d", 2)]);
        assert_eq!((offer.files, offer.bytes), (2, 7));
        let options = CopyOptions {
            recursive: true,
            ..CopyOptions::default()
        };
        let totals = sender.receive(&to, &options, false, Duration::ZERO, &());
        assert_eq!(totals.map(|it| (it.files, it.failed)).unwrap(), (2, 0));
        assert!(to.join("d/y").exists() && !to.join("d/z").exists() && !to.join("c").exists());
    });
}

#[test]
fn Offer__keeps_no_name_back_for_which_there_is_room() {
    let (base, _, _) = places(&[]);
    let from = base.path().join("from");
    for number in 0..400 {
        fs::write(from.join(format!("{number:0>250}")), b"").unwrap();
    }
    let local = (Ipv4Addr::LOCALHOST, 0).into();
    let lo = ["lo".to_owned()];
    let sources = vec![from.join(".")];
    let invitation =
        Invitation::new((sources, Filter::default()), local, &lo, Options::default()).unwrap();
    let mut offer = invitation.offer().clone();
    assert_eq!(offer.entries.len() as u64 + offer.more, 400);
    assert!(offer.more > 0 && offer.says_what_it_can());
    // A repeated name is not an additional one.
    offer.entries.truncate(1);
    offer.entries = vec![offer.entries[0].clone(); 400];
    assert!(!offer.says_what_it_can());
    offer.more = 0;
    assert!(offer.says_what_it_can());
}

#[test]
fn Invitation__gives_nothing_but_what_it_offers() {
    let (base, sources, to) = places(&["a", "secret"]);
    transfer(sources[..1].to_vec(), |sender| {
        let client = &sender.client;
        let options = CopyOptions {
            recursive: true,
            ..CopyOptions::default()
        };
        let refused = |outcome: Result<(), Error>| {
            assert!(matches!(outcome, Err(Error::Refused(_))), "{outcome:?}");
        };
        for path in [&b""[..], b"secret", b"/", b"..", b"from/secret"] {
            let paths = [path.to_vec()];
            refused(client.list(&paths, ListOptions::default(), |_| panic!("listed")));
            refused(
                client
                    .get_stream(path, std::io::stderr(), &CopyOptions::default(), &())
                    .map(drop),
            );
            refused(
                client
                    .put(&[base.path().join("from/a")], path, &options, &())
                    .map(drop),
            );
        }
        let all = RemoveOptions {
            recursive: true,
            force: true,
            empty: false,
        };
        let secret = [b"secret".to_vec()];
        refused(client.remove(&secret, all, &()).map(drop));
        refused(
            client
                .rename(b"secret", b"new", Replace::Any, &())
                .map(drop),
        );
        // Whatever the client requests, it gets the offered files.
        let asked = client.get(&[b"secret".to_vec()], &to.join("x"), &options, &());
        assert!(
            fs::read(to.join("x")).is_ok_and(|it| it == b"new a"),
            "{asked:?}"
        );
        let read_only = client.put_stream(std::io::stdin(), b"new", &options, &());
        assert!(matches!(read_only, Err(Error::Refused(Refusal::ReadOnly))));
        // Only the sender knows its key.
        let plain = client.clone().with_transport(Options::default());
        let listed = plain.list(&[Vec::new()], ListOptions::default(), |_| panic!("listed"));
        assert!(matches!(listed, Err(Error::Connect { .. })), "{listed:?}");
    });
}
