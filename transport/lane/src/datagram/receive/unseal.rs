//! Exchanges keys, and opens sealed datagrams with them: decrypts payload where it landed, before the core sees the
//! datagram. A train is decrypted into its place, which the core finds by a header that is not yet authenticated.

use super::batch::Batch;
use crate::lane::Turn;
use crate::memory::Registry;
use crate::options::Options;
use crate::seal::digest::Digest;
use crate::seal::{Mode, Opener, TRAILER_LEN, Trailer};
use zerolane_core::{DropReason, HandshakeOutcome, RegionId, Span};
use zerolane_handshake::{Exchange, Session};
use zerolane_wire::handshake::HandshakeMessage;
use zerolane_wire::{DIGEST_LEN, HEADER_LEN};

/// Checks the protection of received datagrams before anything of them takes effect.
#[derive(Debug)]
pub(crate) struct Unsealer {
    /// Datagrams are sealed: fixed when the connection opens. Otherwise only trains have a protection, a digest.
    pub(super) sealed: bool,
    /// Opens datagrams, once the key exchange is over.
    opener: Option<Box<Opener>>,
    /// Number of further datagrams for exported memory that are opened outside of it.
    outside: u32,
    /// This end's part of the key exchange, if there is one.
    pub(crate) exchange: Option<Exchange>,
    /// The result of the key exchange.
    pub(crate) session: Option<Box<Session>>,
}

/// Number of datagrams opened outside of exported memory after one failed to open in it. That datagram was forged, or
/// the bytes were changed in place before they were opened. Such changes may continue, and must not spoil the repair as
/// well.
const OPENED_OUTSIDE: u32 = 1024;

impl Unsealer {
    pub(super) fn new(options: &Options) -> Unsealer {
        Unsealer {
            sealed: options.security.mode != Mode::Plain,
            opener: None,
            outside: 0,
            exchange: None,
            session: None,
        }
    }

    /// Opens all datagrams from now on.
    pub(crate) fn protect(&mut self, opener: Opener) {
        (self.sealed, self.opener) = (true, Some(Box::new(opener)));
    }

    /// # Errors
    /// There are no keys.
    pub(super) fn opener(&mut self) -> Result<&mut Opener, DropReason> {
        self.opener.as_deref_mut().ok_or(DropReason::Unprotected)
    }

    /// Bytes around the payload of a datagram.
    pub(super) fn around(&self) -> usize {
        match self.sealed {
            true => HEADER_LEN + TRAILER_LEN,
            false => HEADER_LEN,
        }
    }

    /// Whether sealed trains can be accepted: one pass opens them from the lane's memory into their place.
    pub(super) fn opens_trains(&self) -> bool {
        self.opener.as_ref().is_some_and(|it| it.opens_at())
    }

    /// Whether trains can be accepted that land in place and are checked there.
    pub(super) fn lands_trains(&self) -> bool {
        !self.sealed
    }

    /// Bytes after the header of a train.
    pub(super) fn train_check(&self) -> usize {
        match self.sealed {
            true => TRAILER_LEN,
            false => DIGEST_LEN,
        }
    }

    /// Opens a train in the lane's memory, or checks its digest; `check` is the part after its header.
    pub(super) fn open_train(
        &mut self,
        header: &[u8; HEADER_LEN],
        payload: &mut [u8],
        check: &[u8],
    ) -> Result<(), DropReason> {
        if self.sealed {
            let trailer = check.try_into().map_err(|_| DropReason::Malformed)?;
            return self.opener()?.open(header, payload, trailer);
        }
        match Digest::of(header, payload) == *check {
            true => Ok(()),
            false => Err(DropReason::Checksum),
        }
    }

    /// Opens `payload` into its `place`. `None`: the cipher or that memory does not allow it.
    pub(super) fn open_into_place(
        &mut self,
        header: &[u8; HEADER_LEN],
        payload: &[u8],
        trailer: &Trailer,
        place: Span,
        memory: &Registry,
    ) -> Option<Result<(), DropReason>> {
        if !self.opens_trains() || !self.can_open_in(memory, place.region) {
            return None;
        }
        let to = memory.target(place)?;
        let opener = self.opener.as_mut()?;
        // SAFETY: the registry has these bytes open for writing, for this turn. They are granted, and none of them was
        // reported. Others access exported memory atomically only; mapped files are not opened here; all other memory
        // is the lane's alone.
        Some(unsafe {
            let source = (payload.as_ptr(), payload.len());
            opener.open_at(header, source, to, trailer)
        })
    }

    /// Whether payload for `region` could be opened where it lands. A page of a mapped file may be gone, and not every
    /// cipher works on bytes that others may access meanwhile.
    pub(super) fn can_open_in(&self, memory: &Registry, region: RegionId) -> bool {
        let anywhere = !self.sealed || self.opens_trains();
        memory.is_exclusive(region) || anywhere && !memory.is_file(region)
    }

    /// Whether sealed payload for `region` is opened outside of it.
    pub(super) fn opens_out_of_place(&self, memory: &Registry, region: RegionId) -> bool {
        let may = self.outside == 0 || memory.is_exclusive(region);
        self.sealed && !(may && self.can_open_in(memory, region))
    }

    /// Opens a datagram in one piece and returns its header and payload: `None` if it needs no further processing.
    pub(crate) fn unseal<'d>(
        &mut self,
        datagram: &'d mut [u8],
        turn: &mut Turn<'_>,
    ) -> Option<&'d mut [u8]> {
        if HandshakeMessage::is(datagram) {
            self.take_handshake(datagram, turn);
            return None;
        }
        match self.open_whole(datagram) {
            Ok(opened) => Some(opened),
            Err(reason) => {
                turn.core.on_dropped(reason);
                None
            }
        }
    }

    fn open_whole<'d>(&mut self, datagram: &'d mut [u8]) -> Result<&'d mut [u8], DropReason> {
        if !self.sealed {
            return Ok(datagram);
        }
        let len = datagram.len();
        let (header, rest) = datagram
            .split_first_chunk_mut()
            .ok_or(DropReason::Malformed)?;
        let (payload, trailer) = rest.split_last_chunk_mut().ok_or(DropReason::Unprotected)?;
        self.opener()?.open(header, payload, trailer)?;
        self.outside = self.outside.saturating_sub(1);
        Ok(&mut datagram[..len - TRAILER_LEN])
    }

    /// Takes a message of the key exchange, and tells the core the result.
    fn take_handshake(&mut self, datagram: &[u8], turn: &mut Turn<'_>) {
        let request = turn.core.request();
        let outcome = match &mut self.exchange {
            Some(exchange) => {
                let (outcome, session) = exchange.take(datagram, request.bytes());
                self.session = session.or(self.session.take());
                outcome
            }
            None => HandshakeOutcome::Nothing,
        };
        turn.core.on_handshake(turn.now, outcome);
    }

    /// Opens the Data whose header lies in `slot` and whose payload is `landed`, at the start of a
    /// place of `place` bytes.
    ///
    /// # Errors
    /// It must be dropped.
    pub(super) fn open_landed(
        &mut self,
        batch: &Batch,
        slot: usize,
        landed: Span,
        place: u64,
        memory: &Registry,
    ) -> Result<(), DropReason> {
        if !self.sealed {
            return Ok(());
        }
        let start = memory.target(landed).ok_or(DropReason::Forged)?;
        if !self.can_open_in(memory, landed.region) {
            return Err(DropReason::Forged);
        }
        let trailer = batch.trailer(slot, landed, place, memory);
        let trailer = trailer.ok_or(DropReason::Forged)?;
        let (header, len) = (&batch.slots[slot].header, landed.len as usize);
        let opener = self.opener()?;
        if memory.is_exclusive(landed.region) {
            // SAFETY: the registry has these bytes open for writing, for this turn, and the kernel has filled them.
            // They are granted and not reported yet, and the lane's alone.
            let payload = unsafe { std::slice::from_raw_parts_mut(start, len) };
            return opener.open(header, payload, &trailer);
        }
        // SAFETY: as above, except that others access exported memory atomically. Mapped files are not opened here.
        let opened = unsafe {
            let landed = (start.cast_const(), len);
            opener.open_at(header, landed, start, &trailer)
        };
        if opened == Err(DropReason::Forged) {
            self.outside = OPENED_OUTSIDE;
        }
        opened
    }
}
