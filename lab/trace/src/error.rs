//! Defines the errors of reading a capture file.

use std::io;

/// Why a file could not be read at all. Damage after its header ends the reading but is not an error: see
/// [`Input::ended`](crate::Input).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is of another kind.
    #[error("not a capture: {0}")]
    NotACapture(String),
    /// It begins as one.
    #[error("a capture whose header is cut off or damaged")]
    NoHeader,
    /// Reading failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Error {
    /// For a file that begins with `head`.
    pub(crate) fn not_a_capture(head: &[u8]) -> Error {
        Error::NotACapture(kind(head))
    }
}

/// Beginnings of files that are mistaken for captures, and what to do with them.
const KINDS: [(&[u8], &str); 9] = [
    (
        b"\x1f\x8b",
        "compressed by gzip: decompress it with `zcat`, and read `-` here",
    ),
    (
        b"\x28\xb5\x2f\xfd",
        "compressed by zstd: decompress it with `zstdcat`, and read `-` here",
    ),
    (
        b"\xfd7zXZ\0",
        "compressed by xz: decompress it with `xzcat`, and read `-` here",
    ),
    (
        b"BZh",
        "compressed by bzip2: decompress it with `bzcat`, and read `-` here",
    ),
    (
        b"\x04\x22\x4d\x18",
        "compressed by lz4: decompress it with `lz4cat`, and read `-` here",
    ),
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (
        b"snoop\0\0\0",
        "a snoop capture: convert it with `editcap -F pcap`",
    ),
    (b"\x7fELF", "a program"),
    (b"<?xml", "XML"),
];

/// What a file is that begins with `head`.
fn kind(head: &[u8]) -> String {
    if head.is_empty() {
        return "it is empty".to_owned();
    }
    if let Some((_, kind)) = KINDS.iter().find(|(begin, _)| head.starts_with(begin)) {
        return (*kind).to_owned();
    }
    let is_text = |byte: &u8| byte.is_ascii_graphic() || b" \t\r\n".contains(byte);
    if head.iter().all(is_text) {
        return "it is text".to_owned();
    }
    let bytes: Vec<_> = head.iter().take(4).map(|it| format!("{it:02x}")).collect();
    format!(
        "it begins with {}, which is neither pcap nor pcapng",
        bytes.join(" ")
    )
}
