//! Whether disks can be shown as files.

use std::fs::File;

/// Whether the kernel mounts by FUSE; if not, why is said.
pub(crate) fn is_there() -> bool {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &device {
        eprintln!("skipped: this kernel mounts none by FUSE: /dev/fuse: {error}");
    }
    device.is_ok()
}
