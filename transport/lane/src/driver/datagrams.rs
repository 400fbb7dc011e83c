//! Sends datagrams of the program, and takes those of the peer.

use super::Driver;
use super::post::{Report, RequestInfo};
use crate::lane::Lane;
use crate::memory::{Memory, Region};
use std::time::Duration;
use zerolane_core::{PostError, WorkRequest};

impl<L: Lane> Driver<L> {
    /// Queues `datagram`, whose packets have `dscp`. It may be lost, and is never sent again; if it has not left after
    /// `lifetime`, it is dropped.
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn post_datagram(
        &mut self,
        datagram: Vec<u8>,
        lifetime: Duration,
        dscp: u8,
    ) -> Result<(), PostError> {
        let request = WorkRequest::Datagram { lifetime, dscp };
        let report = Report {
            signalled: false,
            ..Report::default()
        };
        let info = RequestInfo {
            copied: true,
            ..RequestInfo::of(&request, report)
        };
        let memory = Memory::from(Region::from_vec(datagram));
        let posted = self.post_owned(request, info, memory);
        posted.map(drop).map_err(|it| it.reason)
    }

    /// Longest datagram that the peer takes, bytes; 0: none.
    pub fn max_datagram(&self) -> usize {
        self.core.max_datagram() as usize
    }

    /// Bytes of datagrams that wait to leave.
    pub fn datagram_bytes(&self) -> u64 {
        self.core.datagram_bytes()
    }

    /// Whether a datagram of the peer was not taken.
    pub fn has_datagram(&self) -> bool {
        !self.datagrams.is_empty()
    }

    /// The first datagram of the peer that was not taken.
    pub fn take_datagram(&mut self) -> Option<Vec<u8>> {
        self.datagrams.take()
    }
}
