//! Runs the fuzz target `sockets_calls` of `lab/fuzz-targets` on each input of libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| zerolane_fuzz_targets::sockets_calls(input));
