//! Gives the shared library its soname, from the version of the binary interface.

/// As `ZL_ABI_VERSION` in `src/version.rs`; a test of the built library compares them.
const ABI_VERSION: u32 = 0;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libzerolane.so.{ABI_VERSION}");
}
