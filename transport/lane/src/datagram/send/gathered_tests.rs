//! Tests that a failed send is attributed to the offload or to the path.
#![allow(non_snake_case)]
use super::*;

#[test]
fn is_lost_offload__not_when_the_path_shrank() {
    let lost =
        |error, segment| is_lost_offload(&io::Error::from_raw_os_error(error), segment, Some(1472));
    assert!(lost(libc::EIO, 1472), "no checksum offload");
    assert!(lost(libc::EOPNOTSUPP, 1472));
    assert!(
        lost(libc::EINVAL, 1472),
        "fits, and is refused all the same"
    );
    assert!(!lost(libc::EINVAL, 1473), "does not fit any more");
    assert!(!lost(libc::EMSGSIZE, 1473));
    assert!(!lost(libc::EAGAIN, 1472), "a full buffer");
    let einval = io::Error::from_raw_os_error(libc::EINVAL);
    assert!(
        !is_lost_offload(&einval, 1472, None),
        "no way to the peer at all"
    );
}
