//! Fuzzes the one-time code by which a cast calls hosts: no panic; an accepted code is eight digits in order.

use zerolane_handshake::Code;

/// See the first lines of this file.
pub fn run(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let digits: String = text.chars().filter(|it| !"- ".contains(*it)).collect();
    let is_code = digits.len() == 8 && digits.bytes().all(|it| it.is_ascii_digit());
    assert_eq!(text.parse::<Code>().is_ok(), is_code);
}
