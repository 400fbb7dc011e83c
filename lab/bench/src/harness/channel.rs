//! Sends JSON lines between the orchestrator and an end, over pipes or TCP.

use std::io::{BufRead, Read, Write};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::LINE_MAX_BYTES;

/// Reads and writes one message a line.
#[derive(Debug)]
pub(crate) struct Channel<R, W> {
    reader: R,
    writer: W,
}

impl<R: BufRead, W: Write> Channel<R, W> {
    /// A channel over the two directions of a pipe or a connection.
    pub(crate) fn new(reader: R, writer: W) -> Channel<R, W> {
        Channel { reader, writer }
    }

    /// Writes one message and flushes it.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.writer.write_all(&line)?;
        self.writer.flush()?;
        Ok(())
    }

    /// The next message, `None` when the other side closed between messages.
    /// Never holds more than [`LINE_MAX_BYTES`].
    pub(crate) fn receive<M: DeserializeOwned>(&mut self) -> Result<Option<M>> {
        let mut line = Vec::new();
        let limit = LINE_MAX_BYTES as u64;
        self.reader
            .by_ref()
            .take(limit)
            .read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        if line.last() != Some(&b'\n') {
            bail!("the control line is cut short or longer than {limit} bytes");
        }
        let message = serde_json::from_slice(&line).context("the control line cannot be parsed")?;
        Ok(Some(message))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn reading(bytes: &[u8]) -> Channel<&[u8], Vec<u8>> {
        Channel::new(bytes, Vec::new())
    }

    #[test]
    fn send__is_read_back() {
        let mut out = Channel::new(&b""[..], Vec::new());
        out.send(&(1, "a\nb")).unwrap();
        let mut back = reading(&out.writer);
        assert_eq!(
            back.receive::<(u8, String)>().unwrap(),
            Some((1, "a\nb".into()))
        );
        assert_eq!(back.receive::<(u8, String)>().unwrap(), None);
    }

    #[test]
    fn receive__refuses_an_endless_line() {
        let endless = vec![b'1'; LINE_MAX_BYTES * 2];
        let error = reading(&endless).receive::<u64>().unwrap_err();
        assert!(error.to_string().contains("longer than"), "{error}");
    }

    #[test]
    fn receive__refuses_half_a_line_and_words_it_does_not_know() {
        assert!(reading(b"12").receive::<u64>().is_err());
        assert!(reading(b"what\n").receive::<u64>().is_err());
        assert!(reading(b"\xff\xfe\n").receive::<u64>().is_err());
    }
}
