//! Tests that a disk over two links between two hosts survives the death of one link.

use std::process::{Command, Stdio};
use std::time::Duration;

use netlab::netns::{self, Counters, Topology};

use crate::lab::{Between, Lab};
use crate::programs;

const DISK: u64 = 64 << 20;
/// Bytes after which a link counts as used by the disk.
const MUCH: u64 = 128 << 10;

/// Lets fio write the whole disk with the content of `seed`, and verify it.
fn write_and_verify(lab: &Lab, seed: u32, meanwhile: impl FnOnce()) {
    let mut fio = Command::new("fio");
    fio.args([
        "--name=paths",
        "--ioengine=nbd",
        "--rw=write",
        "--bs=256k",
        "--iodepth=16",
    ]);
    fio.args(["--verify=crc32c", "--do_verify=1", "--verify_fatal=1"]);
    fio.arg(format!("--randseed={seed}"));
    fio.arg(format!("--size={DISK}"))
        .arg(format!("--uri={}", lab.uri));
    fio.current_dir(lab.base.path()).stdin(Stdio::null());
    fio.stdout(Stdio::piped()).stderr(Stdio::piped());
    let job = fio.spawn().unwrap();
    meanwhile();
    let output = job.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn paths__a_disk_over_two_links_goes_on_when_one_dies() {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    if !programs::are_there(&["fio"]) {
        return;
    }
    let hosts = Topology::pairs("dpath", 1500, 2).unwrap();
    let second = [hosts.a(), hosts.b()].map(|it| it.interface(1).ipv4());
    let path = format!("{}={}", second[0], second[1]);
    let serve = ["--paths", "2"];
    let attach = ["--path", &path];
    let lab = Lab::new(DISK, Between::Hosts(hosts), &serve, &attach);
    let hosts = lab.hosts.as_ref().unwrap();
    let moved = |before: &[Counters]| -> Vec<u64> {
        let after = hosts.a().counters().unwrap();
        let pairs = after.iter().zip(before);
        pairs.map(|(it, was)| it.sent - was.sent).collect()
    };

    let before = hosts.a().counters().unwrap();
    write_and_verify(&lab, 1, || ());
    let both = moved(&before);
    println!("{both:?} bytes by each");
    assert!(both.iter().all(|&it| it > MUCH), "{both:?} bytes by each");

    // The first link, over which the disk was opened, with requests in progress.
    write_and_verify(&lab, 2, || {
        std::thread::sleep(Duration::from_millis(100));
        hosts.a().set_up(0, false).unwrap();
    });
    let before = hosts.a().counters().unwrap();
    write_and_verify(&lab, 3, || ());
    let one = moved(&before);
    println!("{one:?} bytes by each, one of which is down");
    assert!(one[0] < MUCH && one[1] > MUCH, "{one:?} bytes by each");
}
