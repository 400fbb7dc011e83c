//! Looks up the umask of this process.

use std::sync::LazyLock;

/// The umask of this process, as the system reports it; the usual one otherwise. It is looked up once, before a server
/// is confined.
pub(crate) fn umask() -> u32 {
    static UMASK: LazyLock<u32> = LazyLock::new(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok())
            .unwrap_or(0o022)
    });
    *UMASK
}
