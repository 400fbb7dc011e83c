//! Tests that the types of libfabric are those of the installed headers.
#![allow(non_snake_case)]

use std::path::Path;
use std::process::Command;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Makes the types as they were made: `bindgen src/libfabric.h $(cat bindgen.flags) -o src/libfabric.rs`, one flag a
/// line.
#[test]
fn types__are_those_of_the_installed_headers() {
    let bindgen = Command::new("bindgen").arg("--version").output();
    let Ok(version) = bindgen.map(|it| String::from_utf8_lossy(&it.stdout).into_owned()) else {
        eprintln!("skipped: bindgen is not installed: it is in the Debian package bindgen");
        return;
    };
    if !Path::new("/usr/include/rdma/fabric.h").exists() {
        eprintln!(
            "skipped: libfabric's headers are not installed: they are in the Debian package libfabric-dev"
        );
        return;
    }
    let made = std::fs::read_to_string(format!("{HERE}/src/libfabric.rs")).expect("the types");
    let by = made.lines().next().unwrap_or_default();
    if !by.contains(version.trim().trim_start_matches("bindgen ")) {
        eprintln!(
            "skipped: the types were made by another bindgen than {}",
            version.trim()
        );
        return;
    }
    let flags = std::fs::read_to_string(format!("{HERE}/bindgen.flags")).expect("the flags");
    let mut command = Command::new("bindgen");
    command
        .arg(format!("{HERE}/src/libfabric.h"))
        .args(flags.lines());
    let output = command.output().expect("run");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let now = String::from_utf8_lossy(&output.stdout).into_owned();
    // bindgen formats its output where it finds rustfmt, which adds spaces and commas.
    let plain = |text: &str| {
        let matters = |it: &char| !it.is_whitespace() && *it != ',';
        text.chars().filter(matters).collect::<String>()
    };
    let (made, now) = (plain(&made), plain(&now));
    let same = made.bytes().zip(now.bytes()).take_while(|(a, b)| a == b);
    let at = same.count();
    let from = |text: &str| {
        text.chars()
            .skip(at.saturating_sub(40))
            .take(120)
            .collect::<String>()
    };
    assert!(
        made == now,
        "make the types again, see this test: {:?} is now {:?}",
        from(&made),
        from(&now)
    );
}
