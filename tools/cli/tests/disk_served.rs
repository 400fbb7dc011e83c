//! Tests `zerolane disk` over loopback: serve, ls, info, bench and attach.

#![allow(non_snake_case)]

mod fuse;
mod programs;
mod running;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use running::{Running, zerolane};
use serde_json::Value;

const SIZE: u64 = 4 << 20;

fn output(home: &Path, words: &[&str]) -> Output {
    zerolane(home, words).output().unwrap()
}

fn said(home: &Path, words: &[&str]) -> String {
    let output = output(home, words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A server of two images, and its address.
struct Lab {
    home: tempfile::TempDir,
    images: [PathBuf; 2],
    host: String,
    _server: Running,
}

impl Lab {
    fn new(options: &[&str]) -> Lab {
        let home = tempfile::tempdir().unwrap();
        let images = ["a", "b"].map(|name| home.path().join(name));
        for image in &images {
            File::create(image).unwrap().set_len(SIZE).unwrap();
        }
        let mut serve = zerolane(home.path(), &["disk", "serve", "--listen", "127.0.0.1:0"]);
        serve.args(options).args(&images);
        let mut server = Running::new(serve);
        let line = server.line();
        let host = line.rsplit(' ').next().unwrap().trim_end_matches('.');
        Lab {
            host: host.to_owned(),
            home,
            images,
            _server: server,
        }
    }

    fn place(&self, lun: u16) -> String {
        format!("{}/{lun}", self.host)
    }
}

#[test]
fn disk_ls__lists_what_is_served() {
    let lab = Lab::new(&["--block-size", "4096", "--serial", "first"]);
    let list = said(lab.home.path(), &["disk", "ls", "--json", &lab.host]);
    let units = list.lines().map(|it| serde_json::from_str(it).unwrap());
    let units: Vec<Value> = units.collect();
    assert_eq!(units.len(), 2, "{list}");
    for (number, unit) in units.iter().enumerate() {
        assert_eq!(unit["lun"], number);
        assert_eq!(unit["bytes"], SIZE);
        assert_eq!(unit["block_bytes"], 4096);
        assert_eq!(unit["read_only"], false);
    }
    let info = said(lab.home.path(), &["disk", "info", "--json", &lab.place(1)]);
    let info: Value = serde_json::from_str(&info).unwrap();
    assert_eq!(info, units[1]);
    let image = ["disk", "info", "--json", "--serial", "first"];
    let image = said(
        lab.home.path(),
        &[&image[..], &[lab.images[0].to_str().unwrap()]].concat(),
    );
    let image: Value = serde_json::from_str(&image).unwrap();
    assert_eq!(image["serial"], units[0]["serial"], "a name is an identity");
}

#[test]
fn disk_bench__reads_and_writes_no_more_than_it_is_told() {
    let lab = Lab::new(&[]);
    let place = lab.place(0);
    let common = [
        "--json",
        "--seconds",
        "1",
        "--queue",
        "4",
        "--block",
        "64KiB",
    ];
    let bench = |words: &[&str]| {
        let words = [&["disk", "bench", &place], &common[..], words].concat();
        output(lab.home.path(), &words)
    };
    let read = bench(&["--pattern", "random-read"]);
    let seen: Value = serde_json::from_slice(&read.stdout).unwrap();
    assert!(seen["requests"].as_u64().unwrap() > 0, "{seen}");
    let refused = bench(&["--pattern", "write"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(fs::read(&lab.images[0]).unwrap().iter().all(|&it| it == 0));
    let written = bench(&["--pattern", "write", "--overwrite"]);
    assert!(written.status.success(), "{written:?}");
    assert!(fs::read(&lab.images[0]).unwrap().iter().any(|&it| it != 0));
    assert!(fs::read(&lab.images[1]).unwrap().iter().all(|&it| it == 0));
}

#[test]
fn disk_info__of_a_disk_that_there_is_not_fails_with_words() {
    let lab = Lab::new(&["--read-only"]);
    let failed = output(lab.home.path(), &["disk", "info", &lab.place(7)]);
    assert_eq!(failed.status.code(), Some(1));
    let words = String::from_utf8(failed.stderr).unwrap();
    assert!(words.contains("LOGICAL UNIT NOT SUPPORTED"), "{words}");
    let unlisted = tempfile::tempdir().unwrap();
    let refused = output(unlisted.path(), &["disk", "ls", &lab.host]);
    assert_eq!(refused.status.code(), Some(6), "{refused:?}");
}

#[test]
fn disk_attach__is_the_door_for_nbd_clients() {
    if !programs::are_there(&["nbdcopy"]) {
        return;
    }
    let lab = Lab::new(&[]);
    let socket = lab.home.path().join("door");
    let words = ["disk", "attach", "--socket", socket.to_str().unwrap()];
    let mut attach = zerolane(lab.home.path(), &words);
    attach.arg(lab.place(1));
    let mut door = Running::new(attach);
    let uri = door.line();
    assert!(uri.starts_with("nbd+unix:///?socket="), "{uri:?}");
    let source = lab.home.path().join("source");
    let file = File::create(&source).unwrap();
    file.set_len(SIZE).unwrap();
    file.write_all_at(&[7; 100_000], 12_345).unwrap();
    let copied = Command::new("nbdcopy").arg(&source).arg(&uri).output();
    let copied = copied.unwrap();
    assert!(copied.status.success(), "{copied:?}");
    assert!(fs::read(&lab.images[1]).unwrap() == fs::read(&source).unwrap());
    drop(door);
    assert!(!socket.exists(), "the door is closed");
}

#[test]
fn disk_attach__shows_the_disk_as_a_file() {
    if !programs::are_there(&["nbdfuse", "fusermount3"]) || !fuse::is_there() {
        return;
    }
    let lab = Lab::new(&[]);
    let path = lab.home.path().join("disk");
    let words = ["disk", "attach", "--file", path.to_str().unwrap()];
    let attach = || {
        let mut attach = zerolane(lab.home.path(), &words);
        attach.arg(lab.place(1));
        attach
    };
    for stop in [true, false] {
        let mut door = attach().stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        let out = door.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut said).unwrap();
        assert_eq!(said.trim(), path.to_str().unwrap());
        assert_eq!(fs::metadata(&path).unwrap().len(), SIZE);
        let bytes = vec![7 + u8::from(stop); 100_352];
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&bytes, 12_288).unwrap();
        drop(file);
        match stop {
            true => kill(Pid::from_raw(door.id() as i32), Signal::SIGTERM).unwrap(),
            false => {
                // Children of other tests may have the file open until they call exec.
                assert!((0..200).any(|_| {
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    let mut unmount = Command::new("fusermount3");
                    unmount.arg("-u").arg(&path).status().unwrap().success()
                }));
            }
        }
        let code = door.wait().unwrap().code();
        assert_eq!(code, Some(if stop { 130 } else { 0 }));
        assert!(!path.exists(), "it was there for as long as the door");
        assert!(fs::read(&lab.images[1]).unwrap()[12_288..112_640] == bytes);
    }
    // An existing file is not hidden by the mount.
    fs::write(&path, "precious").unwrap();
    let refused = attach().output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let words = String::from_utf8(refused.stderr).unwrap();
    assert!(words.contains("File exists"), "{words}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

#[test]
fn disk_serve__memory_is_a_disk() {
    let home = tempfile::tempdir().unwrap();
    let serve = |size: &str| {
        let words = ["disk", "serve", "--listen", "127.0.0.1:0", size];
        zerolane(home.path(), &words)
    };
    let mut server = Running::new(serve("memory:8MiB"));
    let line = server.line();
    let host = line.rsplit(' ').next().unwrap().trim_end_matches('.');
    let unit = said(home.path(), &["disk", "ls", "--json", host]);
    let unit: Value = serde_json::from_str(&unit).unwrap();
    assert_eq!(unit["bytes"], 8 << 20);
    assert_eq!(unit["read_only"], false);
    let place = format!("{host}/0");
    let bench = ["disk", "bench", "--json", "--seconds", "1", "--overwrite"];
    let bench = [&bench[..], &["--pattern", "random-write", &place]].concat();
    let seen: Value = serde_json::from_str(&said(home.path(), &bench)).unwrap();
    assert!(seen["requests"].as_u64().unwrap() > 0, "{seen}");
    for bad in ["memory:", "memory:0", "memory:x"] {
        let refused = serve(bad).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{bad}: {refused:?}");
    }
}

/// Bytes that initiators cannot reach must not be dropped silently.
#[test]
fn disk_serve__an_image_whose_end_is_no_whole_block_is_refused_unless_told() {
    let home = tempfile::tempdir().unwrap();
    let image = home.path().join("odd");
    let odd = image.to_str().unwrap();
    let serve = |options: &[&str]| {
        let words = [&["disk", "serve", "--listen", "127.0.0.1:0"][..], options].concat();
        zerolane(home.path(), &words)
    };
    File::create(&image).unwrap().set_len(SIZE + 100).unwrap();
    let whole = home.path().join("whole");
    File::create(&whole).unwrap().set_len(4608).unwrap();
    let whole = whole.to_str().unwrap();
    for (words, bytes, mend) in [
        (&[odd][..], 100, format!("truncate --size=%512 {odd}")),
        (&["--block-size", "4096", whole], 512, "--block-size".into()),
        (&["memory:1000"], 488, "another size".into()),
    ] {
        let refused = serve(words).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(
            said.contains(&format!("the last {bytes} are no whole block")),
            "{said}"
        );
        assert!(
            said.contains(&mend) && said.contains("--ignore-tail"),
            "{said}"
        );
    }
    for option in ["--ignore-tail", "--read-only"] {
        let mut server = Running::new(serve(&[option, odd]));
        server.line();
        let line = server.line();
        assert!(line.contains("without its last 100 bytes"), "{line}");
    }
}

/// The error names the process that holds the image, and what to do.
#[test]
fn disk_serve__an_image_that_is_served_already_is_refused_with_words() {
    let lab = Lab::new(&[]);
    let image = lab.images[0].to_str().unwrap();
    let serve = ["disk", "serve", "--listen", "127.0.0.1:0"];
    let refused = |words: &[&str]| {
        let refused = output(lab.home.path(), &[&serve[..], words].concat());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{said}");
        said
    };
    let said = refused(&[image]);
    let holder = "(zerolane) has it open for writing";
    assert!(
        said.contains(holder) && said.contains("--read-only"),
        "{said}"
    );
    let free = lab.home.path().join("free");
    File::create(&free).unwrap().set_len(SIZE).unwrap();
    let free = free.to_str().unwrap();
    assert!(refused(&[free, free]).contains("twice"));
    // Readers are allowed.
    let reader = [&serve[..], &["--read-only", image]].concat();
    let mut reader = Running::new(zerolane(lab.home.path(), &reader));
    assert!(reader.line().starts_with("Serving 1 disk on"));
}

/// A block device, until it is dropped.
struct Loop(String);

impl Loop {
    /// A loop device over an image, with blocks of 4096 bytes. `None`, after printing the reason, if there are no loop
    /// devices.
    fn of(image: &Path) -> Option<Loop> {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show", "--sector-size", "4096"]);
        match command.arg(image).output() {
            Ok(made) if made.status.success() => {
                let path = String::from_utf8(made.stdout).unwrap();
                Some(Loop(path.trim().to_owned()))
            }
            _ => {
                eprintln!("skipped: a loop device needs root, losetup and a kernel that has them");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn disk_serve__a_device_is_served_in_blocks_no_shorter_than_its_own() {
    let home = tempfile::tempdir().unwrap();
    let image = home.path().join("image");
    File::create(&image).unwrap().set_len(SIZE).unwrap();
    let Some(device) = Loop::of(&image) else {
        return;
    };
    let serve = ["disk", "serve", "--listen", "127.0.0.1:0"];
    let shorter = [&serve[..], &["--block-size", "512", &device.0]].concat();
    let info = ["disk", "info", "--block-size", "512", &device.0];
    for words in [&shorter[..], &info] {
        let refused = output(home.path(), words);
        let words = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{words}");
        assert!(words.contains("the device has blocks of 4096"), "{words}");
    }
    let serve = [&serve[..], &[&device.0]].concat();
    let mut server = Running::new(zerolane(home.path(), &serve));
    let line = server.line();
    let host = line.rsplit(' ').next().unwrap().trim_end_matches('.');
    for words in [
        ["disk", "ls", "--json", host],
        ["disk", "info", "--json", &device.0],
    ] {
        let unit: Value = serde_json::from_str(&said(home.path(), &words)).unwrap();
        assert_eq!(unit["block_bytes"], 4096);
    }
    drop(server);
}
