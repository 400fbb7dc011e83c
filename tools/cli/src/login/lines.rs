//! Reads the channel of a login line by line: perhaps greetings of its shell, then the answer.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::ChildStdout;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// What the channel carried.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said<T> {
    /// The answer.
    Answer(T),
    /// The end, after this text.
    End(Vec<u8>),
    /// More text than a login should print; this is its beginning.
    TooMuch(Vec<u8>),
    /// This text, and then nothing until the time ran out.
    Silence(Vec<u8>),
}

/// Most bytes before the answer.
const NOISE_BYTES: u64 = 256 << 10;
/// How many of these bytes are kept for messages.
const KEPT_BYTES: usize = 512;

/// Waits at most `patience` for the answer. `parse` receives lines, without their ends, until it returns an answer. A
/// thread copies the rest of the channel to `rest`, so that the other end does not block.
///
/// # Errors
/// The system cannot start a thread.
pub(super) fn answer<T: Send + 'static>(
    output: ChildStdout,
    patience: Duration,
    parse: impl FnMut(&[u8]) -> Option<T> + Send + 'static,
    mut rest: impl Write + Send + 'static,
) -> io::Result<(Said<T>, JoinHandle<io::Result<u64>>)> {
    let heard = Arc::new(Heard::default());
    let hearing = Arc::clone(&heard);
    let (tell, told) = channel();
    let thread = std::thread::Builder::new()
        .name("channel".into())
        .spawn(move || {
            let mut output = BufReader::new(output);
            // After a timeout there is no receiver.
            let _ = tell.send(hearing.read_answer(&mut output, parse));
            io::copy(&mut output, &mut rest)
        })?;
    let said = told.recv_timeout(patience);
    let said = said.unwrap_or_else(|_| Said::Silence(heard.noise()));
    Ok((said, thread))
}

/// The text before the answer.
#[derive(Default)]
struct Heard(Mutex<Noise>);

#[derive(Default)]
struct Noise {
    /// The beginning of all earlier lines.
    kept: Vec<u8>,
    line: Vec<u8>,
}

impl Heard {
    fn lock(&self) -> MutexGuard<'_, Noise> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn noise(&self) -> Vec<u8> {
        let mut noise = self.lock();
        noise.keep_line();
        std::mem::take(&mut noise.kept)
    }

    fn read_answer<T>(
        &self,
        output: &mut impl BufRead,
        mut parse: impl FnMut(&[u8]) -> Option<T>,
    ) -> Said<T> {
        let mut output = output.take(NOISE_BYTES);
        loop {
            // A read error ends the channel.
            let chunk = output.fill_buf().unwrap_or_default();
            let end = chunk.iter().position(|&byte| byte == b'\n');
            let len = end.map_or(chunk.len(), |end| end + 1);
            let mut noise = self.lock();
            noise.line.extend(&chunk[..end.unwrap_or(len)]);
            if end.is_some() {
                if let Some(answer) = parse(&noise.line) {
                    drop(noise);
                    output.consume(len);
                    return Said::Answer(answer);
                }
                noise.end_line();
            }
            drop(noise);
            output.consume(len);
            if len == 0 {
                return match output.limit() {
                    0 => Said::TooMuch(self.noise()),
                    _ => Said::End(self.noise()),
                };
            }
        }
    }
}

impl Noise {
    fn keep_line(&mut self) {
        let room = KEPT_BYTES.saturating_sub(self.kept.len());
        self.kept.extend(self.line.iter().take(room));
    }

    fn end_line(&mut self) {
        self.keep_line();
        if self.kept.len() < KEPT_BYTES && !self.line.is_empty() {
            self.kept.push(b'\n');
        }
        self.line.clear();
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use zerolane_files::limits::RENDEZVOUS_LINE_BYTES;

    use super::*;

    fn read(text: &[u8]) -> Said<Vec<u8>> {
        Heard::default().read_answer(&mut { text }, super::super::answer_line)
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
        // The last line is incomplete: the end of the channel may have cut it.
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

    #[test]
    fn answer__is_not_waited_for_without_end() {
        use std::process::{Command, Stdio};
        let script = "echo Welcome; printf 'Start a session? [y/N] '; exec cat";
        let mut login = Command::new("sh");
        login.args(["-c", script]).stdin(Stdio::piped());
        let mut login = login.stdout(Stdio::piped()).spawn().unwrap();
        // The script waits for input that does not come, until this is dropped.
        let asked = login.stdin.take();
        // Long enough for a busy machine to start the script.
        let output = login.stdout.take().unwrap();
        let patience = Duration::from_secs(3);
        let (said, _) = answer::<()>(output, patience, |_| None, io::sink()).unwrap();
        let noise = b"Welcome\nStart a session? [y/N] ".to_vec();
        assert_eq!(said, Said::Silence(noise));
        drop(asked);
        login.wait().unwrap();
    }
}
