//! Parses rates of `--limit` and of the configuration.

use bytesize::ByteSize;
use zerolane_files::limits::LEAST_RATE;

use crate::units;

/// Parses a rate. Returns bytes a second.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    const WANTED: &str = "not a rate such as 10MiB/s or 100mbit";
    let quantity = text.strip_suffix("/s").unwrap_or(text);
    let bytes = match quantity.to_ascii_lowercase().ends_with("bit") {
        true => units::rate(quantity)? / 8,
        // A bare number could mean anything.
        false if quantity.ends_with(|it: char| it.is_ascii_digit()) => return Err(WANTED.into()),
        false => quantity.parse::<ByteSize>().map_err(|_| WANTED)?.as_u64(),
    };
    match bytes >= LEAST_RATE {
        true => Ok(bytes),
        false => Err(format!("at least {}/s", ByteSize(LEAST_RATE))),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parse__bytes_or_bits_with_their_unit() {
        for (text, bytes) in [
            ("10MiB/s", 10 << 20),
            ("10MiB", 10 << 20),
            ("1.5GB/s", 1_500_000_000),
            ("100mbit", 12_500_000),
            ("1Gbit/s", 125_000_000),
            ("16KiB/s", LEAST_RATE),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for wrong in [
            "", "10", "10/s", "/s", "fast", "1KiB/s", "64kbit", "-1MiB/s", "10MiB/h", "0",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
