//! Reads capture files packet by packet: pcap in either byte order, with micro- or nanoseconds, and pcapng.
//!
//! Memory is bounded, whatever the file says.

use crate::Error;
use crate::limits::{MAX_BLOCK_BYTES, MIN_BLOCK_BYTES, READ_BUFFER_BYTES};
use crate::record::{Record, Section};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{LegacyPcapReader, PcapError, PcapNGReader};
use std::io::{self, Cursor, Read};

/// The kind of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// The classic format.
    Pcap,
    /// Its successor.
    PcapNg,
}

/// Bytes that tell a capture file.
const MAGIC: usize = 4;
/// Bytes that are shown of what is none.
const HEAD: usize = 24;
/// The begin of a pcapng file.
const PCAPNG: [u8; MAGIC] = [0x0a, 0x0d, 0x0d, 0x0a];
/// The begins of a pcap file, most significant byte first: micro- and nanoseconds, and a form with longer records.
const PCAP: [u32; 3] = [0xa1b2_c3d4, 0xa1b2_3c4d, 0xa1b2_cd34];
/// The one of those that exists in one byte order alone.
const MODIFIED: u32 = PCAP[2];

/// Shows the packets of a capture to `show`. Its kind, and why the reading ended before the end of the file, if it did.
///
/// # Errors
/// It is no capture, or cannot be read.
pub(crate) fn read(
    mut input: impl Read,
    show: impl FnMut(&Record<'_>),
) -> Result<(Format, Option<String>), Error> {
    let mut head = [0; HEAD];
    let (len, read) = read_whole(&mut input, &mut head);
    read?;
    let head = &head[..len];
    let format = format_of(head).ok_or_else(|| Error::not_a_capture(head))?;
    let mut failed = None;
    let source = Whole {
        input: Cursor::new(head).chain(input),
        failed: &mut failed,
    };
    let ended = match format {
        Format::Pcap => {
            let reader = LegacyPcapReader::new(READ_BUFFER_BYTES, source);
            Blocks::new(reader.map_err(|_| Error::NoHeader)?, format).read(show)
        }
        Format::PcapNg => {
            let reader = PcapNGReader::new(READ_BUFFER_BYTES, source);
            Blocks::new(reader.map_err(|_| Error::NoHeader)?, format).read(show)
        }
    };
    match failed {
        Some(error) => Err(Error::Io(error)),
        None => Ok((format, ended)),
    }
}

fn format_of(head: &[u8]) -> Option<Format> {
    let magic = *head.first_chunk()?;
    let (big, little) = (u32::from_be_bytes(magic), u32::from_le_bytes(magic));
    if magic == PCAPNG {
        Some(Format::PcapNg)
    } else if PCAP.contains(&little) || PCAP.contains(&big) && big != MODIFIED {
        Some(Format::Pcap)
    } else {
        None
    }
}

/// Fills `buffer` unless the input ends before, or fails. How much was read.
fn read_whole(input: &mut impl Read, buffer: &mut [u8]) -> (usize, io::Result<()>) {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (filled, Err(error)),
        }
    }
    (filled, Ok(()))
}

/// Input that fills what it is asked for: the parser takes a short first read, as of a pipe, for a short file. An
/// error, which the parser does not hand on, is the end, and kept.
struct Whole<'a, R> {
    input: R,
    failed: &'a mut Option<io::Error>,
}

impl<R: Read> Read for Whole<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.failed.is_some() {
            return Ok(0);
        }
        let (filled, read) = read_whole(&mut self.input, buffer);
        *self.failed = read.err();
        Ok(filled)
    }
}

/// A file being read.
struct Blocks<R> {
    reader: R,
    format: Format,
    /// Bytes of its buffer.
    capacity: usize,
    /// That is being read; one for all of a pcap file.
    section: Section,
}

/// What comes next in a file.
enum Step {
    Block(usize),
    More,
    End(Option<String>),
}

impl<R: PcapReaderIterator> Blocks<R> {
    fn new(reader: R, format: Format) -> Blocks<R> {
        Blocks {
            reader,
            format,
            capacity: READ_BUFFER_BYTES,
            section: Section::default(),
        }
    }

    /// Shows all packets. Why there are no more, unless it is the end.
    fn read(mut self, mut show: impl FnMut(&Record<'_>)) -> Option<String> {
        loop {
            let at = self.reader.consumed();
            if self.format == Format::PcapNg && is_too_short(self.reader.data()) {
                return Some(damaged(at));
            }
            let step = match self.reader.next() {
                // It would be the same forever.
                Ok((0, _)) => Step::End(Some(damaged(at))),
                Ok((len, block)) => {
                    if let Some(record) = self.section.record_of(&block) {
                        show(&record);
                    }
                    Step::Block(len)
                }
                Err(PcapError::Eof) => Step::End(None),
                Err(PcapError::Incomplete(_) | PcapError::BufferTooSmall) => Step::More,
                Err(PcapError::UnexpectedEof) => Step::End(Some(cut_off(at))),
                Err(_) => Step::End(Some(damaged(at))),
            };
            match step {
                Step::Block(len) => self.reader.consume(len),
                Step::More => {
                    if let Err(why) = self.more(at) {
                        return why;
                    }
                }
                Step::End(why) => return why,
            }
        }
    }

    /// Buffers more of the file, in a larger buffer if this one is full.
    ///
    /// # Errors
    /// It is the end; and why, if the packet at byte `at` wants more than there is, or than is ever buffered.
    fn more(&mut self, at: usize) -> Result<(), Option<String>> {
        let before = self.reader.data().len();
        if self.reader.refill().is_err() {
            return Err(Some(damaged(at)));
        }
        if self.reader.data().len() > before {
            return Ok(());
        }
        if self.reader.reader_exhausted() {
            return Err((before > 0).then(|| cut_off(at)));
        }
        self.capacity *= 2;
        let grown = self.capacity <= MAX_BLOCK_BYTES && self.reader.grow(self.capacity);
        match grown {
            true => Ok(()),
            false => Err(Some(damaged(at))),
        }
    }
}

/// The block that begins here is shorter than its own type and two lengths. The parser subtracts those from what a
/// process information block says without a look. The byte order is the parser's secret: a length that is too short in
/// the other order is 16 MiB or longer in this one, which no block may be.
fn is_too_short(block: &[u8]) -> bool {
    let length = block.get(4..).and_then(<[u8]>::first_chunk);
    length.is_some_and(|&it| u32::from_le_bytes(it).min(u32::from_be_bytes(it)) < MIN_BLOCK_BYTES)
}

fn cut_off(at: usize) -> String {
    format!("cut off in the packet that begins at byte {at}")
}

fn damaged(at: usize) -> String {
    format!("damaged at byte {at}")
}
