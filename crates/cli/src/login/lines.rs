//! What comes over the channel of a login, in lines: greetings of its shell first, perhaps, then the answer.

use std::io::{BufRead, BufReader, Read};
use std::process::ChildStdout;

use zerolane_files::Answer;
use zerolane_files::limits::RENDEZVOUS_LINE_BYTES;

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The line of the answer, without its end.
    Answer(Vec<u8>),
    /// The end, after this.
    End(Vec<u8>),
    /// More than a login prints, which begins so.
    TooMuch(Vec<u8>),
}

/// Bytes that may come before the answer.
const NOISE_BYTES: u64 = 256 << 10;
/// Bytes of them that are kept, to be told.
const KEPT_BYTES: usize = 512;

/// Waits for the answer. What comes after it is taken and forgotten, on a thread, so that the other end is not held up.
pub(super) fn answer(output: ChildStdout) -> Said {
    let mut output = BufReader::new(output);
    let said = read_answer(&mut output);
    if matches!(said, Said::Answer(_)) {
        // Without the thread the other end would have to say a lot to be held up.
        let _ = std::thread::Builder::new()
            .name("channel".into())
            .spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    }
    said
}

fn read_answer(output: &mut impl BufRead) -> Said {
    let mut output = output.take(NOISE_BYTES);
    let mut noise = Vec::new();
    loop {
        let mut line = Vec::new();
        // What cannot be read is over.
        let _ = output.read_until(b'\n', &mut line);
        let complete = line.pop_if(|last| *last == b'\n').is_some();
        if complete && line.len() <= RENDEZVOUS_LINE_BYTES && Answer::begins(&line) {
            return Said::Answer(line);
        }
        let room = KEPT_BYTES.saturating_sub(noise.len());
        noise.extend(line.iter().take(room));
        if complete {
            if noise.len() < KEPT_BYTES && !line.is_empty() {
                noise.push(b'\n');
            }
            continue;
        }
        return match output.limit() {
            0 => Said::TooMuch(noise),
            _ => Said::End(noise),
        };
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Said {
        read_answer(&mut { text })
    }

    #[test]
    fn read_answer__after_whatever_a_login_prints() {
        let line = b"zerolane-answer 1 2 3".to_vec();
        for before in [
            "",
            "Welcome\n",
            "\n\n",
            "no end of line\n",
            "\x1b[1mred\r\n\0\n",
            "zerolane-answers x\n",
        ] {
            let text = [before.as_bytes(), &line, b"\nmore"].concat();
            assert_eq!(read(&text), Said::Answer(line.clone()), "{before:?}");
        }
    }

    #[test]
    fn read_answer__none() {
        assert_eq!(read(b""), Said::End(vec![]));
        assert_eq!(read(b"motd\n\nmore"), Said::End(b"motd\nmore".to_vec()));
        // Not complete: the end of the channel may have cut it.
        assert_eq!(
            read(b"zerolane-answer 1"),
            Said::End(b"zerolane-answer 1".to_vec())
        );
        let long = [
            &b"zerolane-answer "[..],
            &[b'x'; RENDEZVOUS_LINE_BYTES],
            b"\n",
        ]
        .concat();
        assert!(matches!(read(&long), Said::End(noise) if noise.len() == KEPT_BYTES));
        for endless in [&b"x"[..], b"x\n", b"\n"] {
            let endless = endless.repeat(NOISE_BYTES as usize + 1);
            assert!(matches!(read(&endless), Said::TooMuch(noise) if noise.len() <= KEPT_BYTES));
        }
    }
}
