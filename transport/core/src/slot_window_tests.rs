//! Tests that numbers open up to the limit, resolve in any order, and wrap.
#![allow(non_snake_case)]
use super::*;

#[test]
fn open__up_to_the_limit_and_on_when_the_oldest_is_resolved() {
    let mut window = SlotWindow::default();
    assert_eq!((window.open(2), window.open(2)), (Some(0), Some(1)));
    assert_eq!(window.open(2), None);
    window.resolve(1);
    assert_eq!(window.open(2), None, "the oldest still holds its slot");
    window.resolve(0);
    assert_eq!((window.open(2), window.open(2)), (Some(2), Some(3)));
}

#[test]
fn open__numbers_wrap() {
    let mut window = SlotWindow::default();
    window.age(u32::MAX);
    assert_eq!((window.open(9), window.open(9)), (Some(u32::MAX), Some(0)));
    window.resolve(0);
    window.resolve(u32::MAX);
    assert_eq!(window.open(1), Some(1));
}

#[test]
fn resolve__numbers_never_opened_change_nothing() {
    let mut window = SlotWindow::default();
    window.resolve(7);
    window.resolve(u32::MAX);
    assert_eq!(window.open(1), Some(0));
}
