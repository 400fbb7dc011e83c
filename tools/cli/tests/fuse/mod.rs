//! Checks whether tests can mount by FUSE.

use std::fs::File;

/// Whether the kernel supports FUSE; prints a message if not.
pub(crate) fn is_there() -> bool {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &device {
        eprintln!("skipped: this kernel mounts none by FUSE: /dev/fuse: {error}");
    }
    device.is_ok()
}
