//! Runs the fuzz target `key_files` of `lab/fuzz-targets` on each input of libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| zerolane_fuzz_targets::key_files(input));
