//! Opens sealed datagrams: decrypts payload where it landed, before the core sees the datagram. A train is decrypted
//! into its place, which the core finds by the header before that is authenticated.

use super::{Receiver, SPILL};
use crate::lane::Turn;
use crate::memory::Registry;
use crate::seal::digest::Digest;
use crate::seal::{Opener, Opening, TRAILER_LEN, Trailer};
use zerolane_core::{DropReason, HandshakeOutcome, RegionId, Span};
use zerolane_wire::handshake::HandshakeMessage;
use zerolane_wire::{DIGEST_LEN, HEADER_LEN};

/// The protection of received datagrams, which is checked before anything of them takes effect: fixed when the
/// connection opens.
#[derive(Debug)]
pub(super) enum Incoming {
    /// They are not sealed. Trains have a digest.
    Plain,
    /// They are opened with these keys, which come with the end of the key exchange.
    Sealed {
        opener: Option<Box<Opener>>,
        /// Number of further datagrams for exported memory that are opened outside of it.
        outside: u32,
    },
}

/// Number of datagrams opened outside of exported memory after one failed to open in it. That datagram was forged, or
/// the bytes were changed in place before they were opened. Such changes may continue, and must not spoil the repair as
/// well.
const OPENED_OUTSIDE: u32 = 1024;

impl Incoming {
    /// # Errors
    /// There are no keys.
    fn opener(&mut self) -> Result<&mut Opener, DropReason> {
        match self {
            Incoming::Sealed {
                opener: Some(opener),
                ..
            } => Ok(opener),
            _ => Err(DropReason::Unprotected),
        }
    }

    /// Whether datagrams have a trailer.
    pub(super) fn is_protected(&self) -> bool {
        !matches!(self, Incoming::Plain)
    }

    /// Bytes around the payload of a datagram.
    pub(super) fn around(&self) -> usize {
        match self {
            Incoming::Plain => HEADER_LEN,
            Incoming::Sealed { .. } => HEADER_LEN + TRAILER_LEN,
        }
    }

    pub(super) fn open(
        &mut self,
        header: &[u8; HEADER_LEN],
        payload: &mut [u8],
        trailer: &Trailer,
    ) -> Result<(), DropReason> {
        match self {
            Incoming::Plain => Ok(()),
            Incoming::Sealed { .. } => self.opener()?.open(header, payload, trailer),
        }
    }

    /// Opens the payload of `len` bytes at `place`.
    ///
    /// # Safety
    /// The bytes are mapped and writable for the length of the call, and no reference to them is alive. `exclusive`:
    /// nothing else accesses them; otherwise others access them atomically only.
    unsafe fn open_at(
        &mut self,
        header: &[u8; HEADER_LEN],
        place: (*mut u8, usize),
        exclusive: bool,
        trailer: &Trailer,
    ) -> Result<(), DropReason> {
        match self {
            Incoming::Sealed {
                opener: Some(opener),
                outside,
            } if !exclusive => {
                // SAFETY: as promised.
                let opened = unsafe { opener.open_at(header, place, trailer) };
                if opened == Err(DropReason::Forged) {
                    *outside = OPENED_OUTSIDE;
                }
                opened
            }
            _ => {
                // SAFETY: as promised, and nothing else touches them.
                let payload = unsafe { std::slice::from_raw_parts_mut(place.0, place.1) };
                self.open(header, payload, trailer)
            }
        }
    }

    /// Whether sealed trains can be accepted: one pass opens them from the lane's memory into their place.
    pub(super) fn opens_trains(&self) -> bool {
        matches!(self, Incoming::Sealed { opener: Some(opener), .. } if opener.opens_at())
    }

    /// Whether trains can be accepted that land in place and are checked there.
    pub(super) fn lands_trains(&self) -> bool {
        matches!(self, Incoming::Plain)
    }

    /// Bytes after the header of a train.
    pub(super) fn train_check(&self) -> usize {
        match self {
            Incoming::Plain => DIGEST_LEN,
            Incoming::Sealed { .. } => TRAILER_LEN,
        }
    }

    /// Opens a train in the lane's memory, or checks its digest; `check` is the part after its header.
    pub(super) fn open_train(
        &mut self,
        header: &[u8; HEADER_LEN],
        payload: &mut [u8],
        check: &[u8],
    ) -> Result<(), DropReason> {
        match self {
            Incoming::Plain if Digest::of(header, payload) == *check => Ok(()),
            Incoming::Plain => Err(DropReason::Checksum),
            Incoming::Sealed { .. } => {
                let trailer = check.try_into().map_err(|_| DropReason::Malformed)?;
                self.open(header, payload, trailer)
            }
        }
    }

    /// Opens `source` into `place`, which has the same length.
    ///
    /// # Safety
    /// The bytes are mapped and writable for the length of the call, and no reference to them is alive; others access
    /// them atomically, if at all.
    pub(super) unsafe fn open_into(
        &mut self,
        header: &[u8; HEADER_LEN],
        source: &[u8],
        place: *mut u8,
        trailer: &Trailer,
    ) -> Result<(), DropReason> {
        // SAFETY: as promised.
        unsafe { self.opener()?.open_into(header, source, place, trailer) }
    }

    /// The opening of the datagram of `trailer`, for another thread, whose result goes to [`Incoming::opened`].
    ///
    /// # Errors
    /// The datagram must not be opened.
    pub(super) fn hand_out(&mut self, trailer: &Trailer) -> Result<Opening, DropReason> {
        self.opener()?.hand_out(trailer)
    }

    /// Records that another thread opened datagram `number`, or found it forged.
    ///
    /// # Errors
    /// The datagram must be dropped.
    pub(super) fn opened(&mut self, number: u64, opened: bool) -> Result<(), DropReason> {
        self.opener()?.opened(number, opened)
    }

    /// Whether payload for `region` could be opened where it lands. A page of a mapped file may be gone, and not every
    /// cipher works on bytes that others may access meanwhile.
    pub(super) fn can_open_in(&self, memory: &Registry, region: RegionId) -> bool {
        let anywhere = !self.is_protected() || self.opens_trains();
        memory.is_exclusive(region) || anywhere && !memory.is_file(region)
    }

    /// Whether sealed payload for `region` is opened outside of it.
    pub(super) fn opens_out_of_place(&self, memory: &Registry, region: RegionId) -> bool {
        let outside = matches!(self, Incoming::Sealed { outside: 1.., .. });
        let may = !outside || memory.is_exclusive(region);
        self.is_protected() && !(may && self.can_open_in(memory, region))
    }

    /// Opens a datagram that lies in one piece. Returns its header and payload.
    fn open_whole<'d>(&mut self, datagram: &'d mut [u8]) -> Result<&'d mut [u8], DropReason> {
        if !self.is_protected() {
            return Ok(datagram);
        }
        let len = datagram.len();
        let (header, rest) = datagram
            .split_first_chunk_mut()
            .ok_or(DropReason::Malformed)?;
        let (payload, trailer) = rest.split_last_chunk_mut().ok_or(DropReason::Unprotected)?;
        self.open(header, payload, trailer)?;
        if let Incoming::Sealed { outside, .. } = self {
            *outside = outside.saturating_sub(1);
        }
        Ok(&mut datagram[..len - TRAILER_LEN])
    }
}

impl Receiver {
    /// Takes a message of the key exchange, and tells the core the result.
    fn take_handshake(&mut self, datagram: &[u8], turn: &mut Turn<'_>) {
        let (request, len) = turn.core.request();
        let outcome = match &mut self.exchange {
            Some(exchange) => {
                let (outcome, session) = exchange.take(datagram, &request[..len]);
                self.session = session.or(self.session.take());
                outcome
            }
            None => HandshakeOutcome::Nothing,
        };
        turn.core.on_handshake(turn.now, outcome);
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
        match self.incoming.open_whole(datagram) {
            Ok(opened) => Some(opened),
            Err(reason) => {
                turn.core.on_dropped(reason);
                None
            }
        }
    }

    /// Opens the Data whose header lies in `slot` and whose payload is `landed`, at the start of a
    /// place of `place` bytes. False if it was dropped.
    pub(super) fn unseal_in_place(
        &mut self,
        slot: usize,
        landed: Span,
        place: u64,
        turn: &mut Turn<'_>,
    ) -> bool {
        if !self.incoming.is_protected() {
            return true;
        }
        let opened = match self.trailer(slot, landed, place, turn) {
            None => Err(DropReason::Forged),
            // SAFETY: the registry has these bytes open for writing, for this turn, and the kernel has filled them.
            // They are granted and not reported yet. Others access exported memory atomically only; mapped files are
            // not opened here; all other memory is the lane's alone.
            Some((start, trailer)) => unsafe {
                let place = (start, landed.len as usize);
                let exclusive = turn.memory.is_exclusive(landed.region);
                let header = &self.buffers.slots[slot].header;
                self.incoming.open_at(header, place, exclusive, &trailer)
            },
        };
        match opened {
            Ok(()) => true,
            Err(reason) => {
                turn.core.on_dropped(reason);
                false
            }
        }
    }

    /// The start of the payload, and the trailer after it. The trailer is in its slot or, if the payload is shorter
    /// than its place, begins in the place.
    fn trailer(
        &self,
        slot: usize,
        landed: Span,
        place: u64,
        turn: &Turn<'_>,
    ) -> Option<(*mut u8, Trailer)> {
        let start = turn.memory.target(landed)?;
        if !self.incoming.can_open_in(turn.memory, landed.region) {
            return None;
        }
        let mut trailer = self.buffers.slots[slot + 1].trailer;
        let before = (place - landed.len).min(TRAILER_LEN as u64) as usize;
        if before > 0 {
            let end = Span {
                offset: landed.offset + landed.len,
                len: before as u64,
                ..landed
            };
            let behind = self.buffers.slots[slot + 1].trailer;
            if !turn.memory.read(end, &mut trailer[..before]) {
                return None;
            }
            trailer[before..].copy_from_slice(&behind[..TRAILER_LEN - before]);
        }
        Some((start, trailer))
    }

    /// Copies the start of a scattered datagram into `bytes`: its header from `slot`, the rest from its place, the next
    /// slot's trailer, and the spill. False if the page of the place is gone.
    pub(super) fn gather(
        &self,
        (index, slot): (usize, usize),
        place: Span,
        bytes: &mut [u8],
        turn: &Turn<'_>,
    ) -> bool {
        let (head, rest) = bytes.split_at_mut(bytes.len().min(HEADER_LEN));
        head.copy_from_slice(&self.buffers.slots[slot].header[..head.len()]);
        let (placed, rest) = rest.split_at_mut(rest.len().min(place.len as usize));
        if !turn.memory.read(place, placed) {
            return false;
        }
        let trailer = match self.incoming.is_protected() {
            true => &self.buffers.slots[slot + 1].trailer[..],
            false => &[],
        };
        let (behind, spilled) = rest.split_at_mut(rest.len().min(trailer.len()));
        behind.copy_from_slice(&trailer[..behind.len()]);
        spilled.copy_from_slice(&self.buffers.spill[index * SPILL..][..spilled.len()]);
        true
    }
}
