//! What comes over the channel of a login, in lines: greetings of its shell first, perhaps, then the answer.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::ChildStdout;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said<T> {
    /// The answer.
    Answer(T),
    /// The end, after this.
    End(Vec<u8>),
    /// More than a login prints, which begins so.
    TooMuch(Vec<u8>),
    /// This, and then nothing for as long as it may take.
    Silence(Vec<u8>),
}

/// Bytes that may come before the answer.
const NOISE_BYTES: u64 = 256 << 10;
/// Bytes of them that are kept, to be told.
const KEPT_BYTES: usize = 512;

/// Waits for the answer, `patience` at most: `parse` is given lines, without their ends, until it returns one. What comes
/// after it goes to `rest`, until the thread ends, so that the other end is not held up.
///
/// # Errors
/// The system gives no thread.
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
            // Nobody takes it who has waited for too long.
            let _ = tell.send(hearing.read_answer(&mut output, parse));
            io::copy(&mut output, &mut rest)
        })?;
    let said = told.recv_timeout(patience);
    let said = said.unwrap_or_else(|_| Said::Silence(heard.noise()));
    Ok((said, thread))
}

/// What came that is no answer.
#[derive(Default)]
struct Heard(Mutex<Noise>);

#[derive(Default)]
struct Noise {
    /// The beginning of all lines before this one.
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
            // What cannot be read is over.
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

    #[test]
    fn answer__is_not_waited_for_without_end() {
        use std::process::{Command, Stdio};
        let script = "echo Welcome; printf 'Start a session? [y/N] '; exec cat";
        let mut login = Command::new("sh");
        login.args(["-c", script]).stdin(Stdio::piped());
        let mut login = login.stdout(Stdio::piped()).spawn().unwrap();
        // It waits for what nobody says, until this is dropped.
        let asked = login.stdin.take();
        // So long that a busy machine has started it by then.
        let output = login.stdout.take().unwrap();
        let patience = Duration::from_secs(3);
        let (said, _) = answer::<()>(output, patience, |_| None, io::sink()).unwrap();
        let noise = b"Welcome\nStart a session? [y/N] ".to_vec();
        assert_eq!(said, Said::Silence(noise));
        drop(asked);
        login.wait().unwrap();
    }
}
