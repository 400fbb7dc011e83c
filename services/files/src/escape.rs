//! Escapes bytes from outside for printing.

use std::fmt::Write as _;

/// Escapes `bytes` for display: printable characters stay, all others (control characters, bytes that are not UTF-8,
/// the backslash) become `\n`, `\t`, `\\` or `\xNN`.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                c if c.is_control() || is_format(c) => {
                    let mut utf8 = [0; 4];
                    escape_bytes(&mut text, c.encode_utf8(&mut utf8).as_bytes());
                }
                c => text.push(c),
            }
        }
        escape_bytes(&mut text, chunk.invalid());
    }
    text
}

/// Characters that reorder or hide what is printed around them.
fn is_format(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn escape_bytes(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "\\x{byte:02x}");
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn escape__shows_every_byte() {
        assert_eq!(escape(b"plain \xc3\xa9"), "plain \u{e9}");
        assert_eq!(escape(b"a\nb\t\\"), "a\\nb\\t\\\\");
        assert_eq!(escape(b"\xff\x1b[31m"), "\\xff\\x1b[31m");
        assert_eq!(escape("\u{202e}x".as_bytes()), "\\xe2\\x80\\xaex");
    }
}
