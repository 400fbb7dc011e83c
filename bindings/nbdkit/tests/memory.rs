//! Tests that the plugin copies nothing out of memory that a request did not return.

#![allow(non_snake_case)]
#![allow(dead_code)] // The plugin uses the rest.

#[path = "../src/failure.rs"]
mod failure;
#[path = "../src/memory.rs"]
mod memory;

use memory::all_of;
use zerolane::Region;

#[test]
fn all_of__is_as_much_as_was_asked_for() {
    let returned = Region::from_vec(vec![7; 4096]);
    let all = all_of(&returned, 4096);
    assert!(all.is_ok_and(|it| it == [7; 4096]));
    for (returned, bytes) in [(returned, 4095), (Region::empty(), 4096)] {
        let failed = all_of(&returned, bytes).expect_err("another length");
        let words = format!("{} bytes of memory came back, not {bytes}", returned.len());
        assert!(failed.words.contains(&words), "{}", failed.words);
        assert_eq!(failed.errno, 5);
    }
}
