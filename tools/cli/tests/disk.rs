//! Tests `zerolane disk info` on images.

#![allow(non_snake_case)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const SIZE: u64 = 8 << 20;

/// An image of 8 MiB and 100 bytes, with 64 KiB written.
fn image(directory: &Path) -> PathBuf {
    let path = directory.join("image");
    let file = File::create(&path).unwrap();
    file.set_len(SIZE + 100).unwrap();
    file.write_all_at(&[7; 64 << 10], 1 << 20).unwrap();
    path
}

fn info(path: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zerolane"));
    command.args(["disk", "info"]).arg(path).args(words);
    command.output().unwrap()
}

fn json(path: &Path, words: &[&str]) -> Value {
    let output = info(path, &[&["--json"], words].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn disk_info__says_size_holes_and_what_initiators_see() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let said = json(&path, &[]);
    assert_eq!(said["kind"], "file");
    assert_eq!(
        (&said["bytes"], &said["blocks"]),
        (&(SIZE + 100).into(), &(SIZE / 512).into())
    );
    assert_eq!(said["unreachable_bytes"], 100);
    let mapped = said["mapped_bytes"].as_u64().unwrap();
    if mapped < SIZE {
        assert_eq!(mapped, 64 << 10);
        assert_eq!(
            said["ranges"],
            serde_json::json!([{"offset": 1 << 20, "bytes": 64 << 10}])
        );
    } else {
        println!("skipped: this file system has no holes");
    }
    let serial = said["serial"].as_str().unwrap();
    let digits: String = serial.bytes().map(|it| format!("{it:02x}")).collect();
    let pages = said["vital_product_data"].as_array().unwrap();
    let codes: Vec<_> = pages
        .iter()
        .map(|it| it["page"].as_str().unwrap())
        .collect();
    assert_eq!(codes, ["00", "80", "83", "b0", "b1", "b2"]);
    assert_eq!(pages[1]["data"], format!("00800020{digits}"));
    let designators = pages[2]["data"].as_str().unwrap();
    assert!(
        designators.contains(said["naa"].as_str().unwrap()),
        "{designators}"
    );
    // The vendor field contains ZEROLANE.
    assert_eq!(
        &said["inquiry"].as_str().unwrap()[16..32],
        "5a45524f4c414e45"
    );

    let text = info(&path, &[]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.starts_with("file, 8388708 bytes (8.00 MiB)\n16384 blocks of 512 bytes\n"),
        "{text}"
    );
    assert!(text.contains("100 bytes behind the last whole block cannot be reached"));
    assert!(
        text.contains("\nINQUIRY, page b0h, block limits\n  00 b0 00 3c 01 80 "),
        "{text}"
    );
}

#[test]
fn disk_info__identity_follows_from_the_path_or_from_a_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let serial =
        |path: &Path, words: &[&str]| json(path, words)["serial"].as_str().unwrap().to_owned();
    let first = serial(&path, &[]);
    assert_eq!((first.len(), serial(&path, &[])), (32, first.clone()));
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(serial(&link, &[]), first);
    let named = serial(&path, &["--serial", "disk one"]);
    assert_ne!(named, first);
    let moved = directory.path().join("moved");
    std::fs::rename(&path, &moved).unwrap();
    assert_ne!(serial(&moved, &[]), first);
    assert_eq!(serial(&moved, &["--serial", "disk one"]), named);
}

#[test]
fn disk_info__refuses_what_is_no_disk() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let empty = directory.path().join("empty");
    File::create(&empty).unwrap();
    for (path, words, what) in [
        (
            &*path,
            &["--block-size", "1000"][..],
            "blocks of 1000 bytes",
        ),
        (&*path, &["--block-size", "8192"], "blocks of 8192 bytes"),
        (&empty, &[], "less than a block"),
        (directory.path(), &[], "neither a file nor a block device"),
        (&directory.path().join("none"), &[], "No such file"),
    ] {
        let output = info(path, words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(what), "{said}");
    }
}
