//! Fuzzes the listing of a tree and the plan of a sync: no panic; accepted names are in order, components of a path, and
//! not nested too deeply.

/// See the first lines of this file.
pub fn run(input: &[u8]) {
    zerolane_files::fuzzing::listing(input);
}
