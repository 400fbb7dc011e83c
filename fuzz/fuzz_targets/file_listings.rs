//! Runs the fuzz target `file_listings` of `lab/fuzz-targets` on each input of libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| zerolane_fuzz_targets::file_listings(input));
