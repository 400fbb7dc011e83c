//! Any bytes as a request, a reply or feedback of the file service: no panic; what is taken is the same
//! when sent again, and no path that is taken leads out of the served directory.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| zerolane_files::fuzzing::messages(input));
