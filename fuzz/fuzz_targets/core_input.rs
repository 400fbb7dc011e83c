//! Runs the fuzz target `core_input` of `lab/fuzz-targets` on each input of libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| zerolane_fuzz_targets::core_input(input));
