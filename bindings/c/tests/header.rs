//! The committed header is the one the sources make.
//!
//! After a change of the interface: `ZEROLANE_UPDATE_HEADER=1 cargo test -p zerolane-c --test header`.
#![allow(non_snake_case)]

use std::path::Path;

#[test]
fn header__is_what_the_sources_make() {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config =
        cbindgen::Config::from_file(crate_dir.join("cbindgen.toml")).expect("the settings");
    let bindings = cbindgen::generate_with_config(crate_dir, config).expect("a header");
    let mut made = Vec::new();
    bindings.write(&mut made);
    let made = String::from_utf8(made).expect("UTF-8");
    let path = crate_dir.join("include/zerolane.h");
    if std::env::var_os("ZEROLANE_UPDATE_HEADER").is_some() {
        std::fs::write(&path, &made).expect("written");
    }
    let committed = std::fs::read_to_string(&path).expect("the header");
    let differs = made.lines().zip(committed.lines()).find(|(a, b)| a != b);
    assert!(
        made == committed,
        "include/zerolane.h is out of date, first at {differs:?}: see the top of this test"
    );
}
