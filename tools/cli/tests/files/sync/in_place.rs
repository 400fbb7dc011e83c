//! Tests `--in-place` for files and block devices.

use super::*;
use nix::unistd::geteuid;
use std::os::unix::fs::FileTypeExt;

#[test]
fn in_place__keeps_the_file_itself() {
    let lab = Lab::new(&[]);
    for (name, len) in [("small", 1000), ("large", 3 * MIB + 5)] {
        let (from, to) = (lab.local("a").join(name), lab.share("t").join(name));
        write(&from, &content(1, len));
        write(&to, &content(2, len * 2));
        fs::hard_link(&to, lab.share(name)).unwrap();
    }
    write(&lab.local("a/new"), b"new");
    succeed(push(&lab, &["--in-place"], "a", "t"));
    assert_eq!(tree(&lab.local("a"), false), tree(&lab.share("t"), false));
    for name in ["small", "large"] {
        let here = fs::read(lab.local("a").join(name)).unwrap();
        assert!(fs::read(lab.share(name)).unwrap() == here, "{name}");
    }
}

/// Kills an in-place copy of `large` in the middle.
fn kill_in_the_middle(lab: &Lab, put: bool) -> std::path::PathBuf {
    let (from, to) = match put {
        true => (lab.local("a"), lab.share("t")),
        false => (lab.share("a"), lab.local("t")),
    };
    write(&from.join("large"), &content(1, 192 * MIB));
    write(&to.join("large"), &content(2, 192 * MIB));
    let large = to.join("large");
    let command = match put {
        true => push(lab, &["--in-place"], "a", "t"),
        false => pull(lab, &["--in-place"], "a", "t"),
    };
    let before = fs::metadata(&large).unwrap();
    let first = content(1, MIB);
    let started = || {
        let mut now = vec![0; MIB];
        let file = File::open(&large).unwrap();
        file.read_exact_at(&mut now, 0).unwrap();
        now == first
    };
    assert!(kill_when(command, started), "too fast to be killed");
    assert_eq!(fs::metadata(&large).unwrap().ino(), before.ino());
    large
}

#[test]
fn in_place__killed_leaves_a_file_that_no_copy_reads_until_it_is_repaired() {
    for put in [true, false] {
        let lab = Lab::new(&[]);
        let large = kill_in_the_middle(&lab, put);
        if !put {
            // The writing end is gone, but the reading end may not have noticed.
            fs::rename(lab.local("t"), lab.local("b")).unwrap();
            fs::create_dir(lab.share("b")).unwrap();
            fail(
                lab.put(&[], "b/large", "x"),
                1,
                "a copy with --in-place ended early",
            );
            fail(
                push(&lab, &[], "b", "b"),
                1,
                "a copy with --in-place ended early",
            );
            fs::rename(lab.local("b"), lab.local("t")).unwrap();
            succeed(pull(&lab, &["--in-place", "--delta"], "a", "t"));
            assert!(fs::read(&large).unwrap() == content(1, 192 * MIB));
            succeed(lab.put(&[], "t/large", "x"));
        } else {
            // Until the server notices that its client is gone.
            eventually("it is refused", || {
                let (code, out, err) = run(lab.get(&[], "t/large", "x"));
                assert_eq!(code, 1, "{out}{err}");
                (out + &err)
                    .contains("a copy with --in-place ended early")
                    .then_some(())
            });
            fail(
                pull(&lab, &[], "t", "y"),
                1,
                "a copy with --in-place ended early",
            );
            eventually("it is repaired", || {
                when_free(push(&lab, &["--in-place", "--delta"], "a", "t"))
            });
            assert!(fs::read(&large).unwrap() == content(1, 192 * MIB));
            succeed(lab.get(&[], "t/large", "x"));
        }
    }
}

#[test]
fn in_place__a_copy_that_replaces_the_file_repairs_it_too() {
    let lab = Lab::new(&[]);
    let large = kill_in_the_middle(&lab, false);
    succeed(pull(&lab, &[], "a", "t"));
    assert!(fs::read(&large).unwrap() == content(1, 192 * MIB));
    succeed(lab.put(&[], "t/large", "x"));
}

/// A loop device over a file; detached when dropped.
struct Loop(String);

impl Loop {
    fn over(path: &Path) -> Option<Loop> {
        if !geteuid().is_root() {
            println!("skipped: devices are made by root");
            return None;
        }
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(path)
            .output();
        match made {
            Ok(made) if made.status.success() => Some(Loop(
                String::from_utf8(made.stdout).unwrap().trim().to_owned(),
            )),
            why => {
                println!("skipped: no loop device: {why:?}");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn in_place__a_block_device_that_is_named() {
    let lab = Lab::new(&[]);
    let backing = lab.base.path().join("backing");
    fs::write(&backing, content(3, 8 * MIB)).unwrap();
    let Some(device) = Loop::over(&backing) else {
        return;
    };
    assert!(
        fs::metadata(&device.0)
            .unwrap()
            .file_type()
            .is_block_device()
    );
    let mut image = content(1, 6 * MIB);
    image[2 * MIB..4 * MIB].fill(0);
    let sparse = File::create(lab.share("image")).unwrap();
    sparse.set_len(6 * MIB as u64).unwrap();
    sparse.write_all_at(&image[..2 * MIB], 0).unwrap();
    sparse
        .write_all_at(&image[4 * MIB..], 4 * MIB as u64)
        .unwrap();
    let get = |options: &[&str], name: &str| {
        let mut command = zerolane();
        command
            .arg("cp")
            .args(options)
            .arg(lab.there(name))
            .arg(&device.0);
        command
    };
    fail(get(&[], "image"), 1, "is neither a file nor a directory");
    succeed(get(&["--in-place"], "image"));
    let read = || {
        let mut bytes = vec![0; 8 * MIB];
        File::open(&device.0)
            .unwrap()
            .read_exact_at(&mut bytes, 0)
            .unwrap();
        bytes
    };
    let expected = [&image[..], &content(3, 8 * MIB)[6 * MIB..]].concat();
    assert!(read() == expected, "the device has something else");
    // Only parts change.
    image[5 * MIB] ^= 1;
    fs::write(lab.share("image"), &image).unwrap();
    let summary = numbers(get(&["--in-place", "--delta"], "image"));
    assert_eq!(summary["bytes_kept"], 5 * MIB as u64, "{summary}");
    assert!(read()[..6 * MIB] == image);
    fs::write(lab.share("image"), content(4, 8 * MIB + 1)).unwrap();
    fail(get(&["--in-place"], "image"), 1, "no space left");
    assert!(read()[..6 * MIB] == image);
    // The same device, below the served directory.
    let there = lab.share("device");
    let number = fs::metadata(&device.0).unwrap().rdev();
    let (major, minor) = (nix::sys::stat::major(number), nix::sys::stat::minor(number));
    let made = Command::new("mknod")
        .arg(&there)
        .args(["b", &major.to_string(), &minor.to_string()])
        .status();
    assert!(made.unwrap().success());
    let image = content(5, 7 * MIB + 3);
    fs::write(lab.local("image"), &image).unwrap();
    fail(
        lab.put(&[], "image", "device"),
        1,
        "is a device, socket or FIFO",
    );
    succeed(lab.put(&["--in-place"], "image", "device"));
    assert!(read()[..image.len()] == image);
    // A device that is found inside a directory is not written.
    fs::create_dir(lab.local("dir")).unwrap();
    fs::write(lab.local("dir/device"), content(6, MIB)).unwrap();
    fail(
        lab.put(&["-r", "--in-place"], "dir/.", ""),
        1,
        "is a device, socket or FIFO",
    );
    assert!(read()[..image.len()] == image);
}
