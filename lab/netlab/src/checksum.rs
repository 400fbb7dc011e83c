//! Computes the Internet checksum (RFC 1071).

/// One's-complement sum of 16-bit words, the last of which may lack its second byte: all ones if a
/// right checksum is among them, and the complement of the checksum if zeros are.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| match word {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        _ => u32::from(word[0]) << 8,
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
