//! Fuzzes lists of allowed keys, files of known servers, and secret keys: no panic, and no rights beyond those in the
//! list.

use std::fs;
use zerolane::Rights;
use zerolane::keys::{AllowList, KnownHosts, identity};

/// See the first lines of this file.
pub fn run(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    if let Ok(list) = AllowList::parse(text) {
        assert!(list.len() <= text.lines().count());
        for key in text.split_whitespace().filter_map(|word| word.parse().ok()) {
            let Some(rights) = list.rights(&key) else {
                continue;
            };
            assert!(
                rights.files().is_none_or(|below| !below.starts_with(b"/")),
                "a path from the root"
            );
            let none = rights.memory("table", Rights::default());
            assert_eq!(none, Rights::default(), "more than the server offers");
        }
    }
    if let Ok(identity) = identity::parse(text) {
        assert!(text.contains("zl-secret:"));
        assert!(!format!("{identity:?}").contains("zl-secret:"));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("known_hosts");
    fs::write(&file, text).expect("a file");
    if let Ok(known) = KnownHosts::load(&file) {
        let key = "zl:ld5fP9nHU1eyRP-8BWqwC0VrSQ2X2Nz2xh9VqEZ8Oyc".parse();
        let key = key.expect("a key");
        known.remember("host:1", key).expect("remembered");
        let known = KnownHosts::load(&file).expect("still a file of servers");
        assert!(known.key_of("host:1").is_some());
    }
}
