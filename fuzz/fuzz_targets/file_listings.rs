//! Fuzzes the listing of a tree and the plan of a sync: no panic; accepted names are in order, components of a path, and
//! not nested too deeply.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| zerolane_files::fuzzing::listing(input));
