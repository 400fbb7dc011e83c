//! Finds programs by name, as `execvp` does.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Finds `name` in the directories of `PATH`, or checks `name` itself if it has several components.
pub fn find(name: impl AsRef<Path>) -> Option<PathBuf> {
    let name = name.as_ref();
    if name.components().count() > 1 {
        return is_executable(name).then(|| name.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&path).map(|directory| directory.join(name));
    candidates.find(|path| is_executable(path))
}

/// Whether `path` is a file that some user may execute.
pub fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn find__by_path_and_by_name() {
        assert!(find("sh").is_some());
        assert!(find("/bin/sh").is_some());
        for missing in [
            "no-such-program-here",
            env!("CARGO_MANIFEST_PATH"),
            "./nothing",
            "/",
        ] {
            assert_eq!(find(missing), None);
        }
    }
}
