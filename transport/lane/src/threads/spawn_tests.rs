//! Tests that a thread of the library blocks all signals but those of its own faults.
#![allow(non_snake_case)]
use super::*;

#[test]
fn spawn_thread__takes_no_signal_but_those_of_its_faults() {
    let mine = SigSet::thread_get_mask().expect("a mask");
    let theirs = spawn_thread("deaf".to_owned(), SigSet::thread_get_mask);
    let theirs = theirs.expect("a thread").join().expect("no panic");
    let theirs = theirs.expect("a mask");
    let stopping = [Signal::SIGKILL, Signal::SIGSTOP];
    for signal in Signal::iterator().filter(|it| !stopping.contains(it)) {
        assert_eq!(
            theirs.contains(signal),
            !OF_FAULTS.contains(&signal),
            "{signal}"
        );
    }
    assert_eq!(SigSet::thread_get_mask().expect("a mask"), mine);
}
