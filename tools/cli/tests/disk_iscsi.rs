//! Tests `zerolane disk attach --iscsi` with an initiator.

#![allow(non_snake_case)]

mod running;

#[path = "../../../services/iscsi/tests/support/suite.rs"]
#[allow(dead_code, unreachable_pub)]
mod suite;

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use running::{Running, zerolane};
use suite::{check, is_there, run};

/// A served image, and the iSCSI door of its disk.
struct Lab {
    home: tempfile::TempDir,
    url: String,
    _door: Running,
    _server: Running,
}

impl Lab {
    fn new(bytes: u64, serve_options: &[&str], attach_options: &[&str]) -> Lab {
        // Memory: the initiator's tests wait 3 s at most, and a disk that others write to takes longer for a flush.
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let image = home.path().join("image");
        File::create(&image).unwrap().set_len(bytes).unwrap();
        let mut serve = zerolane(home.path(), &["disk", "serve", "--listen", "127.0.0.1:0"]);
        serve.args(serve_options).arg(&image);
        let mut server = Running::new(serve);
        let line = server.line();
        let host = line.rsplit(' ').next().unwrap().trim_end_matches('.');
        let mut attach = zerolane(home.path(), &["disk", "attach", "--iscsi=127.0.0.1:0"]);
        attach.args(attach_options).arg(format!("{host}/0"));
        let mut door = Running::new(attach);
        let url = door.line();
        assert!(url.starts_with("iscsi://127.0.0.1:"), "{url}");
        Lab {
            home,
            url,
            _door: door,
            _server: server,
        }
    }
}

fn said(tool: &str, url: &str) -> String {
    let mut command = Command::new(tool);
    let output = command.arg(url).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{tool}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn disk_iscsi__what_passed_of_iscsi_test_cu_passes_through_a_remote_disk() {
    if !is_there("iscsi-test-cu") {
        return;
    }
    let lab = Lab::new(256 << 20, &[], &[]);
    let outcome = run(&lab.url, lab.home.path());
    check(
        &outcome,
        include_str!("../../../services/iscsi/tests/conformance.md"),
    );
    let image = File::open(lab.home.path().join("image")).unwrap();
    let taken = image.metadata().unwrap().blocks();
    assert!(taken > 0, "what the suite wrote is in the image");
}

#[test]
fn disk_iscsi__the_disk_is_the_one_that_is_served() {
    if !is_there("iscsi-readcapacity16") {
        return;
    }
    let lab = Lab::new(
        4 << 20,
        &["--block-size", "4096", "--serial", "it"],
        &["--read-only"],
    );
    let capacity = said("iscsi-readcapacity16", &lab.url);
    assert!(
        capacity.contains("LOGICAL BLOCK LENGTH IN BYTES:4096"),
        "{capacity}"
    );
    assert!(capacity.contains("Total size:4194304"), "{capacity}");
    let serial = lab.url.rsplit([':', '/']).nth(1).unwrap();
    let known = zerolane_block::Identity::named("it").to_string();
    assert_eq!(
        serial, known,
        "its name is the serial number that the disk has there"
    );
}
