//! Any bytes as a tree's listing and as the plan of a sync: no panic; what is taken is in order, its names are
//! components of a path, and it does not nest too deeply.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| zerolane_files::fuzzing::listing(input));
