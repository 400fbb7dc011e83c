//! Keeps the library in memory once it is loaded: its threads and the Rust runtime survive no dlclose.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
