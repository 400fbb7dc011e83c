//! Negotiates with a client before its requests: its options, and the replies.

use super::bytes::Taker;
use super::export::Export;
use super::{Offence, Terms};
use crate::limits::{MAX_OPTION, MAX_OPTIONS};

const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const REPLY: u64 = 0x0003_e889_0455_65a9;
/// Of both ends alike.
const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;
/// Behind the answer to EXPORT_NAME, unless the client wants none.
const ZEROES: usize = 124;
/// Magic, option, length.
const HEADER: usize = 16;

const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const INFO: u32 = 6;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const LIST_META_CONTEXT: u32 = 9;
const SET_META_CONTEXT: u32 = 10;

const ACK: u32 = 1;
const SERVER: u32 = 2;
const INFORMATION: u32 = 3;
const META_CONTEXT: u32 = 4;
const UNSUPPORTED: u32 = 1 << 31 | 1;
const INVALID: u32 = 1 << 31 | 3;
const UNKNOWN: u32 = 1 << 31 | 6;

const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

const ALLOCATION: &[u8] = b"base:allocation";
/// The query of a client for all contexts of the namespace.
const NAMESPACE: &[u8] = b"base:";
/// By which `base:allocation` is known from its selection on.
pub(super) const ALLOCATION_ID: u32 = 1;

/// How a negotiation ended.
pub(super) enum Negotiated {
    /// Requests follow.
    Serve(Terms),
    /// The client goes.
    Leave,
}

/// The state of the negotiation.
#[derive(Default)]
pub(super) struct Negotiation {
    /// The client's flags, once they came.
    flags: Option<u16>,
    terms: Terms,
    options: u32,
}

/// The answer to an option.
enum Answer {
    /// More options follow.
    Next,
    Over(Negotiated),
}

impl Negotiation {
    pub(super) fn greet(out: &mut Vec<u8>) {
        out.extend(MAGIC.to_be_bytes());
        out.extend(OPTION.to_be_bytes());
        out.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    }

    /// Takes the flags, or an option: how many bytes, and whether it was the last. `None`: it is not whole.
    pub(super) fn take(
        &mut self,
        input: &[u8],
        export: &Export,
        out: &mut Vec<u8>,
    ) -> Result<Option<(usize, Option<Negotiated>)>, Offence> {
        let mut taker = Taker(input);
        let Some(flags) = self.flags else {
            let Some(flags) = taker.u32() else {
                return Ok(None);
            };
            let known = u32::from(FIXED_NEWSTYLE | NO_ZEROES);
            let flags = u16::try_from(flags & known)
                .ok()
                .filter(|_| flags & !known == 0);
            self.flags = Some(flags.ok_or(Offence::Flags)?);
            return Ok(Some((4, None)));
        };
        let magic = taker.u64();
        if magic.is_some_and(|it| it != OPTION) {
            return Err(Offence::Magic);
        }
        let (Some(option), Some(length)) = (taker.u32(), taker.u32()) else {
            return Ok(None);
        };
        if length > MAX_OPTION {
            return Err(Offence::OptionLength(length));
        }
        let Some(data) = taker.bytes(length as usize) else {
            return Ok(None);
        };
        self.options += 1;
        if self.options > MAX_OPTIONS {
            return Err(Offence::Options);
        }
        let answer = match option {
            EXPORT_NAME => self.export_name(flags, data, export, out)?,
            ABORT => {
                reply(out, option, ACK, &[]);
                Answer::Over(Negotiated::Leave)
            }
            LIST => list(data, out),
            INFO | GO => self.info(option, data, export, out),
            STRUCTURED_REPLY => self.structured(data, out),
            LIST_META_CONTEXT | SET_META_CONTEXT => self.contexts(option, data, out),
            _ => {
                reply(out, option, UNSUPPORTED, &[]);
                Answer::Next
            }
        };
        let outcome = match answer {
            Answer::Next => None,
            Answer::Over(outcome) => Some(outcome),
        };
        Ok(Some((HEADER + data.len(), outcome)))
    }

    /// The oldest way to begin; it knows no errors.
    fn export_name(
        &self,
        flags: u16,
        name: &[u8],
        export: &Export,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Offence> {
        if !name.is_empty() {
            return Err(Offence::Export);
        }
        out.extend(export.bytes.to_be_bytes());
        out.extend(export.flags(self.terms.structured).to_be_bytes());
        if flags & NO_ZEROES == 0 {
            out.extend([0; ZEROES]);
        }
        Ok(Answer::Over(Negotiated::Serve(self.terms)))
    }

    fn info(&self, option: u32, data: &[u8], export: &Export, out: &mut Vec<u8>) -> Answer {
        let Some((name, wanted)) = parse_info(data) else {
            reply(out, option, INVALID, b"the data is not a name and a list");
            return Answer::Next;
        };
        if !name.is_empty() {
            reply(out, option, UNKNOWN, b"the only export has the empty name");
            return Answer::Next;
        }
        let mut about = INFO_EXPORT.to_be_bytes().to_vec();
        about.extend(export.bytes.to_be_bytes());
        about.extend(export.flags(self.terms.structured).to_be_bytes());
        reply(out, option, INFORMATION, &about);
        if wanted {
            let mut lengths = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
            lengths.extend(export.lengths().iter().flat_map(|it| it.to_be_bytes()));
            reply(out, option, INFORMATION, &lengths);
        }
        reply(out, option, ACK, &[]);
        match option {
            GO => Answer::Over(Negotiated::Serve(self.terms)),
            _ => Answer::Next,
        }
    }

    fn structured(&mut self, data: &[u8], out: &mut Vec<u8>) -> Answer {
        let kind = match data.is_empty() {
            true => ACK,
            false => INVALID,
        };
        self.terms.structured |= kind == ACK;
        reply(out, STRUCTURED_REPLY, kind, &[]);
        Answer::Next
    }

    fn contexts(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Answer {
        let is_set = option == SET_META_CONTEXT;
        // An earlier selection no longer applies, whatever the result.
        self.terms.allocation &= !is_set;
        let parsed = parse_contexts(data).filter(|_| self.terms.structured);
        let Some((name, queries)) = parsed else {
            reply(out, option, INVALID, &[]);
            return Answer::Next;
        };
        if !name.is_empty() {
            reply(out, option, UNKNOWN, &[]);
            return Answer::Next;
        }
        let all = !is_set && (queries.is_empty() || queries.contains(&NAMESPACE));
        if all || queries.contains(&ALLOCATION) {
            let id = if is_set { ALLOCATION_ID } else { 0 };
            let context = [&id.to_be_bytes()[..], ALLOCATION].concat();
            reply(out, option, META_CONTEXT, &context);
            self.terms.allocation |= is_set;
        }
        reply(out, option, ACK, &[]);
        Answer::Next
    }
}

/// There is one export, without a name.
fn list(data: &[u8], out: &mut Vec<u8>) -> Answer {
    if data.is_empty() {
        reply(out, LIST, SERVER, &0u32.to_be_bytes());
        reply(out, LIST, ACK, &[]);
    } else {
        reply(out, LIST, INVALID, &[]);
    }
    Answer::Next
}

/// The name, and whether lengths of requests are asked for.
fn parse_info(data: &[u8]) -> Option<(&[u8], bool)> {
    let mut taker = Taker(data);
    let name = taker.named()?;
    let mut wanted = false;
    for _ in 0..taker.u16()? {
        wanted |= taker.u16()? == INFO_BLOCK_SIZE;
    }
    taker.is_empty().then_some((name, wanted))
}

/// The name of the export, and the queries.
fn parse_contexts(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut taker = Taker(data);
    let name = taker.named()?;
    let count = taker.u32()?;
    let mut queries = Vec::new();
    for _ in 0..count {
        queries.push(taker.named()?);
    }
    taker.is_empty().then_some((name, queries))
}

fn reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend(REPLY.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    // Answers are short.
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
}
