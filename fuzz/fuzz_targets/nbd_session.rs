//! Runs the fuzz target `nbd_session` of `lab/fuzz-targets` on each input of libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| zerolane_fuzz_targets::nbd_session(input));
