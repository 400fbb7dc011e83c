//! Fuzzes requests, replies and feedback of the file service: no panic; an accepted message is the same when sent again,
//! and no accepted path leads out of the served directory.

/// See the first lines of this file.
pub fn run(input: &[u8]) {
    zerolane_files::fuzzing::messages(input);
}
