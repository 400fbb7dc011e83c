//! Tests that the holder of a lock is found, and not a process that waits for it.
#![allow(non_snake_case)]

use super::*;

const LOCKS: &str = "\
1: POSIX  ADVISORY  WRITE 11 fd:01:5678 0 EOF
2: FLOCK  ADVISORY  WRITE 22 fd:01:567 0 EOF
3: FLOCK  ADVISORY  WRITE 0 00:2a:99 0 EOF
4: FLOCK  ADVISORY  WRITE 33 fd:01:5678 0 EOF
4: -> FLOCK  ADVISORY  WRITE 44 fd:01:5678 0 EOF
5: FLOCK
";

#[test]
fn process_in__is_the_one_with_the_lock_and_none_that_waits() {
    assert_eq!(process_in(LOCKS, (0xfd, 1), 5678), Some(33));
    assert_eq!(process_in(LOCKS, (0xfd, 1), 567), Some(22));
    assert_eq!(process_in(LOCKS, (0xfd, 2), 5678), None);
    assert_eq!(process_in(LOCKS, (0, 0x2a), 99), None, "it is hidden");
}
