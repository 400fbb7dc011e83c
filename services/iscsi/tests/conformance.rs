//! Tests the door against other implementations: libiscsi's test suite and its tools.

#![allow(non_snake_case)]

mod support;

use std::process::{Command, Stdio};

use support::suite::{check, is_there, run};
use support::{Door, NAME, portal};

fn said(tool: &str, words: &[&str]) -> String {
    let output = Command::new(tool)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{tool}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn conformance__what_passed_of_iscsi_test_cu_passes() {
    if !is_there("iscsi-test-cu") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let door = Door::new(portal(256 << 20));
    let outcome = run(&door.url(), directory.path());
    check(&outcome, include_str!("conformance.md"));
}

#[test]
fn conformance__libiscsis_tools_find_the_disk() {
    for tool in ["iscsi-ls", "iscsi-inq", "iscsi-readcapacity16"] {
        if !is_there(tool) {
            return;
        }
    }
    let door = Door::new(portal(8 << 20));
    let list = said("iscsi-ls", &["-s", &format!("iscsi://{}", door.address)]);
    assert!(
        list.contains(&format!("Target:{NAME} Portal:{},1", door.address)),
        "{list}"
    );
    assert!(list.contains("Lun:0"), "{list}");
    assert!(said("iscsi-inq", &[&door.url()]).contains("Vendor:ZEROLANE"));
    let capacity = said("iscsi-readcapacity16", &[&door.url()]);
    assert!(capacity.contains("Total size:8388608"), "{capacity}");
}
