//! Reads the sizes of a core's caches from the kernel.

use std::fs;
use std::path::Path;

use zerolane_model::Caches;

/// Those of a core, where the kernel tells none.
const USUAL: Caches = Caches {
    own: 1 << 20,
    last: 32 << 20,
};

/// Of this core: its own largest one that is for data, and the largest of all.
pub(super) fn of(core: usize) -> Caches {
    let directory = format!("/sys/devices/system/cpu/cpu{core}/cache");
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut levels: Vec<(u32, usize)> = entries.filter_map(|it| level(&it.path())).collect();
    levels.sort_unstable();
    let own = levels.iter().rfind(|(level, _)| *level <= 2);
    match (own, levels.last()) {
        (Some(&(_, own)), Some(&(_, last))) => Caches { own, last },
        _ => USUAL,
    }
}

/// Level and bytes of a cache that holds data.
fn level(cache: &Path) -> Option<(u32, usize)> {
    let read = |name| fs::read_to_string(cache.join(name)).ok();
    if read("type")?.trim() == "Instruction" {
        return None;
    }
    Some((
        read("level")?.trim().parse().ok()?,
        bytes(read("size")?.trim())?,
    ))
}

/// Of "1024K".
fn bytes(size: &str) -> Option<usize> {
    let at = size.find(|it: char| !it.is_ascii_digit());
    let (number, unit) = size.split_at(at.unwrap_or(size.len()));
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_shl(shift)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn bytes__of_every_unit() {
        assert_eq!(bytes("64"), Some(64));
        assert_eq!(bytes("1024K"), Some(1 << 20));
        assert_eq!(bytes("480M"), Some(480 << 20));
        assert_eq!(bytes("7G"), None);
        assert_eq!(bytes(""), None);
    }
}
