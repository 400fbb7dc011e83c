//! Reads and writes big-endian numbers in byte strings, as SCSI lays them out.

/// The number that at most eight bytes make.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |sum, &byte| (sum << 8) | u64::from(byte))
}

/// The low bytes of `value` fill `field`. False, and nothing is written, if it does not fit.
pub(crate) fn put(field: &mut [u8], value: u64) -> bool {
    let bytes = value.to_be_bytes();
    let (rest, own) = bytes.split_at(bytes.len() - field.len().min(bytes.len()));
    let fits = rest.iter().all(|&it| it == 0);
    if fits {
        field.copy_from_slice(own);
    }
    fits
}
