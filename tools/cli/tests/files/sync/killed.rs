//! Tests syncs of which either end is killed.

use std::process::Stdio;

use super::*;

#[test]
fn sync__killed_and_run_again() {
    let mut lab = Lab::new(&[]);
    for number in 0..300 {
        let directory = format!("d{}", number % 7);
        let size = if number % 50 == 0 { 2 * MIB } else { 2000 };
        write(
            &lab.local("a").join(&directory).join(number.to_string()),
            &content(number, size),
        );
        // Part of the tree exists with other content or types, and there are extra files.
        let there = lab.share("t").join(&directory);
        match number % 5 {
            0 => write(&there.join(number.to_string()), b"old"),
            1 => write(&there.join(number.to_string()).join("was a"), b"directory"),
            2 => write(&there.join(format!("extra {number}/file")), b"x"),
            _ => {}
        }
    }
    let source = tree(&lab.local("a"), false);
    let mut killed = 0;
    for round in 0..40_u64 {
        // A server keeps the connection of a killed client for a while.
        lab.server = None;
        lab.start(zerolane(), &[], "127.0.0.1:0");
        let mut sync = push(&lab, &["--delete", "--resume"], "a", "t");
        let sync = sync.arg("-q").stderr(Stdio::null());
        let mut running = Running(sync.spawn().unwrap());
        let micros = u64::from(content(round, 1)[0]) * 150;
        std::thread::sleep(Duration::from_micros(micros));
        let ended = running.0.try_wait().unwrap();
        killed += u32::from(ended.is_none());
        // Either end is killed first.
        if round % 2 == 0 {
            lab.server = None;
        }
        drop(running);
        // A server that continues after its client's death would change the tree.
        lab.server = None;
        // Each path of the source has its old or its new content.
        for (path, words) in tree(&lab.share("t"), false) {
            let Some(expected) = source.get(&path) else {
                continue;
            };
            let old = words.ends_with(blake3::hash(b"old").to_hex().as_str());
            let directory = words.starts_with("directory");
            let hash = |it: &str| it.rsplit(' ').next().unwrap().to_owned();
            assert!(
                old || directory || hash(&words) == hash(expected),
                "round {round}: {path} {words}, not {expected}"
            );
        }
    }
    assert!(killed > 0, "none of them was killed");
    lab.server = None;
    lab.start(zerolane(), &[], "127.0.0.1:0");
    eventually("a sync that is not in the way of a killed one", || {
        when_free(push(&lab, &["--delete"], "a", "t"))
    });
    assert_eq!(tree(&lab.local("a"), false), tree(&lab.share("t"), false));
    assert_eq!(numbers(push(&lab, &["--delete"], "a", "t"))["sent"], 0);
}
