//! Encodes and parses the pax records in front of an entry: names and times that do not fit its header.

use std::io;

/// The known records of an entry. Unknown ones are ignored.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Records {
    pub(super) path: Option<Vec<u8>>,
    pub(super) linkpath: Option<Vec<u8>>,
    /// Seconds, and nanoseconds behind them.
    pub(super) mtime: Option<(i64, u32)>,
    /// The file has holes; how long it is with them.
    pub(super) sparse: Option<u64>,
}

const SECOND: i128 = 1_000_000_000;

impl Records {
    /// As they stand in an archive: each is `LENGTH KEY=VALUE\n`, the length being that of all of it.
    pub(super) fn parse(mut bytes: &[u8]) -> io::Result<Records> {
        let mut records = Records::default();
        let mut version = (None, None);
        while !bytes.is_empty() {
            let (key, value, rest) = split(bytes).ok_or_else(malformed)?;
            bytes = rest;
            match key {
                b"path" | b"GNU.sparse.name" => records.path = Some(value.to_vec()),
                b"linkpath" => records.linkpath = Some(value.to_vec()),
                b"mtime" => records.mtime = Some(parse_time(value).ok_or_else(malformed)?),
                b"GNU.sparse.major" => version.0 = number(value),
                b"GNU.sparse.minor" => version.1 = number(value),
                b"GNU.sparse.realsize" => {
                    records.sparse = Some(number(value).ok_or_else(malformed)?);
                }
                _ => {}
            }
        }
        match (records.sparse, version) {
            (None, (None, None)) | (Some(_), (Some(1), Some(0))) => Ok(records),
            _ => Err(malformed()),
        }
    }
}

fn malformed() -> io::Error {
    io::Error::other("the archive has malformed records")
}

/// Key and value of the first record, and the remaining bytes.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().position(|it| *it == b' ')?;
    let len = usize::try_from(number(&bytes[..space])?).ok()?;
    let record = bytes.get(space + 1..len)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|it| *it == b'=')?;
    Some((&record[..equals], &record[equals + 1..], &bytes[len..]))
}

/// A number of digits alone.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Formats a time for a record: seconds with a fraction, negative before 1970.
pub(super) fn time((seconds, nanoseconds): (i64, u32)) -> String {
    let all = i128::from(seconds) * SECOND + i128::from(nanoseconds);
    let sign = if all < 0 { "-" } else { "" };
    let (whole, fraction) = (all.abs() / SECOND, all.abs() % SECOND);
    format!("{sign}{whole}.{fraction:09}")
}

fn parse_time(text: &[u8]) -> Option<(i64, u32)> {
    let (sign, text) = match text.strip_prefix(b"-") {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let mut parts = text.splitn(2, |it| *it == b'.');
    let whole = parts.next().filter(|it| !it.is_empty());
    let mut fraction = parts.next().unwrap_or_default().to_vec();
    let digits = fraction.iter().all(u8::is_ascii_digit);
    fraction.resize(9, b'0');
    let fraction = number(&fraction).filter(|_| digits)?;
    let all = sign * (i128::from(number(whole?)?) * SECOND + i128::from(fraction));
    let seconds = i64::try_from(all.div_euclid(SECOND)).ok()?;
    Some((seconds, all.rem_euclid(SECOND) as u32))
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
