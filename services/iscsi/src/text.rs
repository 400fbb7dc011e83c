//! Encodes and parses text keys (RFC 7143, 6.1): `key=value`, each ended by a zero byte.

use crate::limits::MAX_TEXT_BYTES;

/// Why bytes are not valid text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// More than [`MAX_TEXT_BYTES`].
    #[error("text of more than {MAX_TEXT_BYTES} bytes")]
    Long,
    /// No UTF-8, or no `=`.
    #[error("a pair without a key, or that is not UTF-8")]
    Pair,
}

/// The pairs in `text`, in their order.
///
/// # Errors
/// The bytes are not valid text.
pub fn pairs(text: &[u8]) -> Result<Vec<(&str, &str)>, TextError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(TextError::Long);
    }
    let parts = text.split(|&it| it == 0).filter(|it| !it.is_empty());
    let pair = |part| {
        let part: &str = str::from_utf8(part).map_err(|_| TextError::Pair)?;
        let pair = part.split_once('=').filter(|(key, _)| !key.is_empty());
        pair.ok_or(TextError::Pair)
    };
    parts.map(pair).collect()
}

/// Appends a pair.
pub fn put(into: &mut Vec<u8>, key: &str, value: &str) {
    into.extend(key.bytes());
    into.push(b'=');
    into.extend(value.bytes());
    into.push(0);
}

/// A number, decimal or, behind `0x`, hexadecimal.
pub fn number(value: &str) -> Option<u32> {
    match value.strip_prefix("0x").or(value.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u32::from_str_radix(digits, 16).ok(),
        None if !value.starts_with('+') => value.parse().ok(),
        _ => None,
    }
}
