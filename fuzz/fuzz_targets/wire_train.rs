//! Fuzzes with the target of the same name.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| zerolane_fuzz_targets::wire_train(input));
