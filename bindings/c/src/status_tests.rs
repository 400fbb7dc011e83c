//! Tests the text of the last error, and that each status has a text.
#![allow(non_snake_case)]
use super::*;

fn last_error() -> String {
    // SAFETY: a text of this thread, ended by a zero, and not replaced meanwhile.
    unsafe { CStr::from_ptr(zl_last_error()) }
        .to_str()
        .expect("UTF-8")
        .to_owned()
}

#[test]
fn guard__a_panic_becomes_a_code() {
    let status = guard(|| panic!("kept on this side"));
    assert_eq!(status, ZL_ERROR_INTERNAL);
    assert!(last_error().contains("panic"), "{}", last_error());
}

#[test]
fn guard__texts_are_the_threads() {
    guard(|| Err(Failure::argument("here\0only")));
    assert_eq!(last_error(), "here only");
    let elsewhere = std::thread::spawn(last_error).join().expect("no panic");
    assert_eq!(elsewhere, "");
    guard(|| Ok(ZL_OK));
    assert_eq!(last_error(), "here only", "success changes nothing");
}

#[test]
fn zl_status_text__every_code_has_its_own() {
    let mut texts: Vec<_> = zl_status::ALL.iter().map(|status| status.text()).collect();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), zl_status::ALL.len());
    // SAFETY: a static text.
    let unknown = unsafe { CStr::from_ptr(zl_status_text(-12345)) };
    assert_eq!(unknown, c"unknown status");
}
