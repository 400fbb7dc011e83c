//! Tests `--delta`, which sends only the parts that differ.

use super::*;

/// Bytes that were sent.
fn sent(summary: &serde_json::Value) -> u64 {
    summary["bytes"].as_u64().unwrap() - summary["bytes_kept"].as_u64().unwrap()
}

#[test]
fn delta__sends_the_units_that_differ() {
    let old = content(1, 24 * MIB + 5);
    let changed = |at: usize| {
        let mut new = old.clone();
        new[at] ^= 1;
        new
    };
    let grown = [&old[..], b"more"].concat();
    let shifted = [b"x", &old[..]].concat();
    for (what, new, expected) in [
        ("a byte", changed(9 * MIB), MIB),
        ("the first byte", changed(0), MIB),
        ("the last byte", changed(old.len() - 1), 5),
        ("grown", grown, 9),
        ("shrunk", old[..13 * MIB + 7].to_vec(), 0),
        ("shrunk to a whole unit", old[..13 * MIB].to_vec(), 0),
        (
            "shrunk and changed",
            changed(2 * MIB)[..13 * MIB].to_vec(),
            MIB,
        ),
        ("all shifted", shifted, old.len() + 1),
        ("too small", content(2, MIB + MIB / 2), MIB + MIB / 2),
    ] {
        for in_place in [false, true] {
            let lab = Lab::new(&[]);
            let options = match in_place {
                true => &["--delta", "--in-place"][..],
                false => &["--delta"],
            };
            for push_it in [true, false] {
                let (from, to) = match push_it {
                    true => (lab.local("a"), lab.share("t")),
                    false => (lab.share("a"), lab.local("t")),
                };
                write(&from.join("f"), &new);
                write(&to.join("f"), &old);
                // Files written within one tick of the kernel's clock have the same time.
                make_older(&to.join("f"));
                let inode = fs::metadata(to.join("f")).unwrap().ino();
                let summary = numbers(match push_it {
                    true => push(&lab, options, "a", "t"),
                    false => pull(&lab, options, "a", "t"),
                });
                assert!(fs::read(to.join("f")).unwrap() == new, "{what}: {summary}");
                assert_eq!(tree(&from, false), tree(&to, false), "{what}");
                assert_eq!(sent(&summary), expected as u64, "{what}: {summary}");
                let kept_it = fs::metadata(to.join("f")).unwrap().ino() == inode;
                assert_eq!(kept_it, in_place, "{what}");
                assert_eq!(names(&to), ["f"]);
            }
        }
    }
}

#[test]
fn delta__of_sparse_files_keeps_the_holes() {
    let lab = Lab::new(&[]);
    let sparse = |path: &Path, content: &[(u64, &[u8])], len| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = File::create(path).unwrap();
        file.set_len(len).unwrap();
        for (at, bytes) in content {
            file.write_all_at(bytes, *at).unwrap();
        }
    };
    let mib = MIB as u64;
    let common = content(1, 3 * MIB);
    for options in [
        &["--delta"][..],
        &["--in-place"],
        &["--delta", "--in-place"],
    ] {
        let (new, old) = (lab.local("a/f"), lab.share("t/f"));
        sparse(&new, &[(8 * mib, &common), (40 * mib, b"new")], 64 * mib);
        sparse(&old, &[(8 * mib, &common), (20 * mib, &common)], 50 * mib);
        let summary = numbers(push(&lab, options, "a", "t"));
        assert!(
            fs::read(&new).unwrap() == fs::read(&old).unwrap(),
            "{summary}"
        );
        let blocks = fs::metadata(&old).unwrap().blocks() * 512;
        assert!(blocks <= 4 * mib, "{options:?}: {blocks}");
        if options.contains(&"--delta") {
            // A page of the file system contains the three bytes.
            let holes = summary["bytes_in_holes"].as_u64().unwrap();
            assert!(sent(&summary) - holes <= 64 << 10, "{summary}");
        }
        fs::remove_dir_all(lab.share("t")).unwrap();
    }
}

#[test]
fn cp__delta_sends_the_units_that_differ() {
    let lab = Lab::new(&[]);
    let mut bytes = content(1, 24 * MIB);
    for (put, from, to) in [
        (true, lab.local("a"), lab.share("b")),
        (false, lab.share("c"), lab.local("d")),
    ] {
        fs::write(&to, &bytes).unwrap();
        bytes[5 * MIB] ^= 1;
        fs::write(&from, &bytes).unwrap();
        let summary = numbers(match put {
            true => lab.put(&["--delta"], "a", "b"),
            false => lab.get(&["--delta"], "c", "d"),
        });
        assert_eq!(sent(&summary), MIB as u64, "{summary}");
        assert!(fs::read(&to).unwrap() == bytes);
    }
    // Only the permissions differ.
    fs::set_permissions(lab.local("a"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(lab.share("b"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::copy(lab.local("a"), lab.share("b")).unwrap();
    fs::set_permissions(lab.share("b"), fs::Permissions::from_mode(0o644)).unwrap();
    let summary = numbers(lab.put(&["--delta"], "a", "b"));
    assert_eq!(sent(&summary), 0, "{summary}");
    let mode = fs::metadata(lab.share("b")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
}
