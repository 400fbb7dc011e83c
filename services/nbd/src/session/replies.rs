//! Builds replies to requests. Data is not copied: the server sends it after these bytes.

use super::Session;
use super::errno::Errno;
use super::options::ALLOCATION_ID;
use super::requests::{Kind, Request};

const SIMPLE: u32 = 0x6744_6698;
const STRUCTURED: u32 = 0x668e_33ef;
/// It is the last of its request.
const DONE: u16 = 1;

const NONE: u16 = 0;
const OFFSET_DATA: u16 = 1;
const BLOCK_STATUS: u16 = 5;
const ERROR: u16 = 1 << 15 | 1;

const HOLE: u32 = 1;
const ZERO: u32 = 2;

fn simple(request: &Request, error: u32) -> Vec<u8> {
    let mut reply = SIMPLE.to_be_bytes().to_vec();
    reply.extend(error.to_be_bytes());
    reply.extend(request.cookie.to_be_bytes());
    reply
}

fn chunk(request: &Request, kind: u16, bytes: u32) -> Vec<u8> {
    let mut reply = Vec::with_capacity(32);
    reply.extend(STRUCTURED.to_be_bytes());
    reply.extend(DONE.to_be_bytes());
    reply.extend(kind.to_be_bytes());
    reply.extend(request.cookie.to_be_bytes());
    reply.extend(bytes.to_be_bytes());
    reply
}

impl Session {
    /// The reply to a successful `request`. The data of a read follows it.
    pub fn done(&self, request: &Request) -> Vec<u8> {
        if !self.terms().structured {
            return simple(request, 0);
        }
        match request.kind {
            // A chunk of data has at least one byte.
            Kind::Read if request.bytes > 0 => {
                // One that is not refused is short.
                let mut reply = chunk(request, OFFSET_DATA, request.bytes.saturating_add(8));
                reply.extend(request.at.to_be_bytes());
                reply
            }
            _ => chunk(request, NONE, 0),
        }
    }

    /// The reply to a failed `request`.
    pub fn failed(&self, request: &Request, why: Errno) -> Vec<u8> {
        if !self.terms().structured {
            return simple(request, why.number());
        }
        let mut reply = chunk(request, ERROR, 6);
        reply.extend(why.number().to_be_bytes());
        reply.extend(0u16.to_be_bytes());
        reply
    }

    /// The reply with the extents from the request's first byte on: their lengths, and whether each is mapped. At least
    /// one.
    pub fn extents(&self, request: &Request, extents: &[(u32, bool)]) -> Vec<u8> {
        // As many as the server asks for: few.
        let mut reply = chunk(request, BLOCK_STATUS, 4 + 8 * extents.len() as u32);
        reply.extend(ALLOCATION_ID.to_be_bytes());
        for (bytes, mapped) in extents {
            let flags = if *mapped { 0 } else { HOLE | ZERO };
            reply.extend(bytes.to_be_bytes());
            reply.extend(u32::to_be_bytes(flags));
        }
        reply
    }
}
