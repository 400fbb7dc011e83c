//! Tests the door with nbdcopy, qemu-img and fio.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::lab::{DISK, Lab, are_there, content, output, run};

#[test]
fn door__nbdcopy_copies_in_and_out() {
    if !are_there(&["nbdcopy"]) {
        return;
    }
    let lab = Lab::new(false);
    let (source, back) = (lab.path("source"), lab.path("back"));
    for seed in [1, 2] {
        fs::write(&source, content(seed)).unwrap();
        run("nbdcopy", &["--flush", &source, &lab.door.uri]);
        assert!(fs::read(&lab.image).unwrap() == content(seed), "the image");
        run("nbdcopy", &[&lab.door.uri, &back]);
        assert!(fs::read(&back).unwrap() == content(seed), "the copy");
    }
}

#[test]
fn door__qemu_img_converts_and_compares() {
    if !are_there(&["qemu-img"]) {
        return;
    }
    let lab = Lab::new(false);
    let (raw, qcow, uri) = (lab.path("raw"), lab.path("qcow"), &*lab.door.uri);
    fs::write(&raw, content(3)).unwrap();
    let said = run("qemu-img", &["info", "--output=json", uri]);
    let size = format!("\"virtual-size\": {DISK}");
    assert!(said.contains(&size), "{said}");
    run(
        "qemu-img",
        &["convert", "-n", "-f", "raw", "-O", "raw", &raw, uri],
    );
    assert!(fs::read(&lab.image).unwrap() == content(3), "the image");
    run(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", &raw, uri],
    );
    run(
        "qemu-img",
        &["convert", "-f", "raw", "-O", "qcow2", uri, &qcow],
    );
    run(
        "qemu-img",
        &["compare", "-f", "qcow2", "-F", "raw", &qcow, &raw],
    );
}

#[test]
fn door__a_read_only_one_says_so_and_writes_nothing() {
    if !are_there(&["nbdinfo", "nbdcopy"]) {
        return;
    }
    let lab = Lab::new(true);
    let said = run("nbdinfo", &[&lab.door.uri]);
    assert!(said.contains("is_read_only: true"), "{said}");
    assert!(said.contains(&format!("export-size: {DISK}")), "{said}");
    assert!(said.contains("block_size_minimum: 512"), "{said}");
    assert!(said.contains("can_multi_conn: true"), "{said}");
    let source = lab.path("source");
    fs::write(&source, content(4)).unwrap();
    let refused = output("nbdcopy", &[&source, &lab.door.uri]);
    assert!(!refused.status.success(), "{refused:?}");
    assert!(fs::read(&lab.image).unwrap().iter().all(|&it| it == 0));
}

/// What `nbdinfo --map` says: where, how many bytes, and how they are.
fn map(uri: &str) -> Vec<(u64, u64, u64)> {
    let said = run("nbdinfo", &["--map", uri]);
    let number = |text: &str| text.parse().unwrap();
    let of = |line: &str| {
        let mut words = line.split_whitespace().map(number).take(3);
        let mut next = || -> u64 { words.next().unwrap() };
        (next(), next(), next())
    };
    let line = |it: &str| of(it.rsplit_once(' ').map_or(it, |(before, _)| before));
    said.lines().map(line).collect()
}

#[test]
fn door__extents_are_the_disks_and_a_sparse_copy_is_sparse() {
    if !are_there(&["nbdinfo", "nbdcopy"]) {
        return;
    }
    let lab = Lab::new(false);
    let file = File::options().write(true).open(&lab.image).unwrap();
    let piece = vec![7; 128 << 10];
    for at in [1 << 20, 5 << 20, DISK as u64 - (128 << 10)] {
        file.write_all_at(&piece, at).unwrap();
    }
    let (mut next, mut mapped) = (0, 0);
    for (at, bytes, kind) in map(&lab.door.uri) {
        assert_eq!(at, next, "without a gap");
        assert!(kind == 0 || kind == 3, "data, or a hole of zeros: {kind}");
        mapped += if kind == 0 { bytes } else { 0 };
        next += bytes;
    }
    assert_eq!((next, mapped), (DISK as u64, 3 * piece.len() as u64));
    let copy = lab.path("copy");
    run("nbdcopy", &[&lab.door.uri, &copy]);
    assert!(fs::read(&copy).unwrap() == fs::read(&lab.image).unwrap());
    let taken = fs::metadata(&copy).unwrap().blocks() * 512;
    assert!(taken < 1 << 20, "{taken} bytes of the copy have a place");
}

/// fio with its engine `nbd`; the job writes all of the disk, and verifies what it wrote.
#[test]
fn door__fio_verifies_while_the_target_is_started_anew() {
    if !are_there(&["fio"]) {
        return;
    }
    let mut lab = Lab::new(false);
    let mut fio = Command::new("fio");
    fio.args(["--name=x", "--ioengine=nbd", "--rw=randrw", "--iodepth=16"]);
    fio.args(["--bsrange=4k-256k", "--fsync=64", "--verify=crc32c"]);
    fio.args(["--verify_backlog=64", "--verify_fatal=1", "--time_based"]);
    fio.args(["--runtime=3", "--randrepeat=0"]);
    fio.arg(format!("--size={DISK}"))
        .arg(format!("--uri={}", lab.door.uri));
    fio.current_dir(lab.directory.path()).stdin(Stdio::null());
    fio.stdout(Stdio::piped()).stderr(Stdio::piped());
    let job = fio.spawn().unwrap();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(600));
        lab.restart();
    }
    let output = job.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(fs::read(&lab.image).unwrap().iter().any(|&it| it != 0));
}
