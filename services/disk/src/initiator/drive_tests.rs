//! Tests that a request without its memory completes with an error.
#![allow(non_snake_case)]

use super::*;

/// A read without its memory must fail, because the caller would have nothing to copy from.
#[test]
fn done__without_its_memory_is_an_error() {
    let missing = || Err(Error::System("no memory".into()));
    let lost = done(None, missing());
    assert!(matches!(lost.result, Err(Error::System(_))), "{lost:?}");
    let failed = done(Some(Error::Reserved), missing());
    assert!(matches!(failed.result, Err(Error::Reserved)), "{failed:?}");
    let memory = Region::anonymous(4096).unwrap();
    let well = done(None, Ok(memory));
    assert!(well.result.is_ok() && well.memory.len() == 4096, "{well:?}");
}
