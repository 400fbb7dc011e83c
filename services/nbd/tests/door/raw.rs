//! Plays a client that sends the bytes that a test gives it.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const LEAVE: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const ZERO: u16 = 6;

/// A connection with simple replies.
pub(crate) struct Raw {
    pub(crate) stream: UnixStream,
    next: u64,
    /// Requests that are not answered: how much data their answers have.
    asked: HashMap<u64, usize>,
}

/// An answer.
pub(crate) struct Reply {
    pub(crate) cookie: u64,
    pub(crate) error: u32,
    pub(crate) data: Vec<u8>,
}

impl Raw {
    /// One that was negotiated.
    pub(crate) fn new(socket: &Path) -> Raw {
        let mut raw = Raw::silent(socket);
        let mut greeting = [0; 18];
        raw.stream.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        raw.stream.write_all(&[0, 0, 0, 3]).unwrap();
        raw.stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
        raw.stream.read_exact(&mut [0; 10]).unwrap();
        raw
    }

    /// One that has said nothing.
    pub(crate) fn silent(socket: &Path) -> Raw {
        Raw {
            stream: UnixStream::connect(socket).unwrap(),
            next: 0,
            asked: HashMap::new(),
        }
    }

    /// Asks; by which number the answer is known.
    pub(crate) fn ask(&mut self, kind: u16, at: u64, bytes: u32, payload: &[u8]) -> u64 {
        self.next += 1;
        let mut said = 0x2560_9513u32.to_be_bytes().to_vec();
        said.extend([0, 0]);
        said.extend(kind.to_be_bytes());
        said.extend(self.next.to_be_bytes());
        said.extend(at.to_be_bytes());
        said.extend(bytes.to_be_bytes());
        said.extend(payload);
        self.stream.write_all(&said).unwrap();
        let data = if kind == READ { bytes as usize } else { 0 };
        self.asked.insert(self.next, data);
        self.next
    }

    /// The next answer.
    pub(crate) fn reply(&mut self) -> Reply {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head).unwrap();
        assert_eq!(head[..4], [0x67, 0x44, 0x66, 0x98]);
        let error = u32::from_be_bytes(*head[4..].first_chunk().unwrap());
        let cookie = u64::from_be_bytes(*head[8..].first_chunk().unwrap());
        let bytes = self.asked.remove(&cookie).expect("it was asked for");
        let mut data = vec![0; if error == 0 { bytes } else { 0 }];
        self.stream.read_exact(&mut data).unwrap();
        Reply {
            cookie,
            error,
            data,
        }
    }

    /// Asks, and takes the answer.
    pub(crate) fn call(&mut self, kind: u16, at: u64, bytes: u32, payload: &[u8]) -> Reply {
        let cookie = self.ask(kind, at, bytes, payload);
        let reply = self.reply();
        assert_eq!(reply.cookie, cookie);
        reply
    }

    /// The server has closed the connection.
    pub(crate) fn is_over(&mut self) -> bool {
        let mut rest = Vec::new();
        // What was not read by the server makes it a reset.
        self.stream
            .read_to_end(&mut rest)
            .is_ok_and(|it| it < 1 << 20)
            || self.stream.read(&mut [0]).is_ok_and(|it| it == 0)
    }
}
