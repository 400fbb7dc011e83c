//! Parses a place in a host's memory: `NAME[@OFFSET[+LEN]]`.

use std::str::FromStr;

use bytesize::ByteSize;

/// Bytes of an exported region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The region's name.
    pub(crate) name: String,
    /// The offset in the region, bytes.
    pub(crate) offset: u64,
    /// The number of bytes; `None` means all that follow.
    pub(crate) len: Option<u64>,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let (name, rest) = match text.rsplit_once('@') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        if name.is_empty() {
            return Err("no name before '@'".into());
        }
        let (offset, len) = match rest.map(|rest| rest.split_once('+').unwrap_or((rest, ""))) {
            None => (0, None),
            Some((offset, "")) => (number(offset)?, None),
            Some((offset, len)) => (number(offset)?, Some(number(len)?)),
        };
        Ok(Place {
            name: name.to_owned(),
            offset,
            len,
        })
    }
}

/// Parses a number of bytes: decimal, hexadecimal with `0x`, or with a unit such as `4KiB`.
fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        None => text.parse().ok().map(|size: ByteSize| size.as_u64()),
    };
    parsed.ok_or_else(|| format!("{text:?} is no number of bytes"))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn Place__as_users_write_it() {
        for (text, name, offset, len) in [
            ("a", "a", 0, None),
            ("a@8", "a", 8, None),
            ("a@0x10+4KiB", "a", 16, Some(4096)),
            ("a@18446744073709551615+1", "a", u64::MAX, Some(1)),
            ("me@home@8+2", "me@home", 8, Some(2)),
        ] {
            let name = name.to_owned();
            assert_eq!(text.parse(), Ok(Place { name, offset, len }), "{text}");
        }
        for bad in [
            "",
            "@8",
            "a@",
            "a@x",
            "a@-1",
            "a@8+x",
            "a@18446744073709551616",
        ] {
            assert!(bad.parse::<Place>().is_err(), "{bad}");
        }
    }
}
