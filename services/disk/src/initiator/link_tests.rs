//! Tests what a link sends, with a target that the test plays.
#![allow(non_snake_case)]

use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use zerolane::Endpoint;
use zerolane_block::cdb::{Extent, Form};

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);
const SLOTS: u16 = 4;

/// A command as it came, and what lay in its capsule then.
type Seen = (CommandUnit, Data, Vec<u8>);

fn target_login(capsule_bytes: u32) -> Login {
    Login {
        roles: Roles {
            initiator: false,
            target: true,
        },
        alignment: 0,
        units: 1,
        slots: SLOTS,
        transfer_bytes: 1 << 20,
        capsule_bytes,
        session: 7,
    }
}

/// A link to an end that answers the login and no command. `knows`: it is not of a time before there were capsules.
fn linked(capsule_bytes: u32, knows: bool) -> (Link, mpsc::Receiver<Seen>, JoinHandle<()>) {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", Default::default()).unwrap();
    let address = endpoint.local_addr();
    let (tell, seen) = mpsc::channel();
    let target = thread::spawn(move || {
        let mut connection = endpoint.accept(Some(PATIENCE)).unwrap().unwrap();
        let bytes = usize::from(SLOTS) * CAPSULE_BYTES as usize;
        let region = ExportedRegion::new(Region::anonymous(bytes).unwrap()).unwrap();
        let key = connection.export(&region, Rights::WRITE).unwrap();
        let login = connection.recv_message(None).unwrap();
        let message::Message::Login(login, _) = message::parse(&login.control).unwrap() else {
            panic!("no login at first");
        };
        assert_eq!(login.capsule_bytes, CAPSULE_BYTES);
        let key = knows.then_some(&key);
        let bytes = message::target_login(&target_login(capsule_bytes), key);
        connection.send_message(&bytes, None).unwrap();
        while let Ok(command) = connection.recv_message(None) {
            let message::Message::Command(unit, data) = message::parse(&command.control).unwrap()
            else {
                panic!("no command");
            };
            let mut capsule = vec![0; capsule_bytes as usize];
            region.read(usize::from(unit.slot) * capsule.len(), &mut capsule);
            tell.send((unit, data, capsule)).unwrap();
        }
    });
    let connection = Connection::connect(address, &Default::default()).unwrap();
    let link = Link::open(connection, 1, SLOTS, PATIENCE).unwrap();
    (link, seen, target)
}

fn write(blocks: u64) -> Cdb {
    let command = Command::Write {
        form: Form::Sixteen,
        extent: Extent { lba: 0, blocks },
        dpo: false,
        fua: false,
    };
    command.cdb().unwrap()
}

/// Sends a write in a capsule, if it goes there.
fn send(link: &mut Link, bytes: u64, content: u8) -> bool {
    if !link.put_in_capsule(bytes, |it| it.fill(content)).unwrap() {
        return false;
    }
    let lun = Lun::new(0).unwrap();
    let sent = link.send(lun, &write(bytes / 512), (0, bytes), &Data::InCapsule);
    sent.unwrap().unwrap();
    true
}

/// Has the connection do what it owes until the target has seen a command, and all is confirmed: after a repeat nothing long
/// leaves at once before.
fn next_seen(link: &mut Link, seen: &mpsc::Receiver<Seen>) -> Seen {
    let deadline = Instant::now() + PATIENCE;
    let mut came = None;
    while Instant::now() < deadline {
        link.connection
            .wait(Some(Duration::from_millis(1)))
            .unwrap();
        came = came.or_else(|| seen.try_recv().ok());
        // But for the receive that a link has.
        if link.connection.in_flight() == 1
            && let Some(it) = came.take()
        {
            return it;
        }
    }
    panic!("nothing came, or it is not confirmed");
}

#[test]
fn link__what_is_short_is_in_the_capsule_of_its_slot_when_the_command_is_there() {
    let (mut link, seen, target) = linked(8192, true);
    for (number, bytes) in [512, 4096, 8192].into_iter().enumerate() {
        let content = number as u8 + 1;
        assert!(send(&mut link, bytes, content));
        let (unit, data, capsule) = next_seen(&mut link, &seen);
        assert_eq!((unit.slot, unit.data_out), (number as u16, bytes));
        assert_eq!(data, Data::InCapsule);
        let (sent, behind) = capsule.split_at(bytes as usize);
        assert!(sent.iter().all(|&it| it == content), "{bytes} bytes");
        assert!(behind.iter().all(|&it| it == 0), "behind {bytes} bytes");
    }
    assert!(!send(&mut link, 8192 + 512, 9), "it has no room");
    drop(link);
    target.join().unwrap();
}

#[test]
fn link__to_a_target_without_capsules_sends_nothing_in_them() {
    for (bytes, knows) in [(0, false), (0, true), (8192, false)] {
        let (mut link, seen, target) = linked(bytes, knows);
        assert!(!send(&mut link, 512, 1), "{bytes}, {knows}");
        drop(link);
        target.join().unwrap();
        assert!(seen.try_recv().is_err());
    }
}
