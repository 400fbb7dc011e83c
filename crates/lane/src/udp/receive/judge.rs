//! What has arrived, shown to the core: where it lies if the prediction held, else made linear.

use super::{CONTROL_DATAGRAM, Receiver};
use crate::cleanup::Move;
use crate::udp::send;
use crate::{Account, MoveCause, Registry, Turn, fault};
use zerolane_core::{DropReason, Placement, Span};
use zerolane_wire::{HEADER_LEN, Header, OPTIONS_LEN, Op, checksum::Sum};

/// A message that the kernel filled.
#[derive(Clone, Copy, Debug)]
struct Message {
    index: usize,
    /// Bytes of all datagrams in it.
    total: usize,
    /// Bytes of each of them, the last one aside.
    segment: usize,
}

impl Message {
    fn segments(&self) -> usize {
        self.total.div_ceil(self.segment).max(1)
    }
}

/// STUs with consecutive headers, to be judged as one.
struct Group {
    first: Header,
    /// Slot of the last header.
    last_slot: usize,
    len: u32,
    stu: u32,
    last_len: u32,
    landed: Span,
}

impl Group {
    fn of(header: &[u8; HEADER_LEN], slot: usize, landed: Span) -> Option<Group> {
        let len = landed.len as u32;
        Some(Group {
            first: Header::parse(header).ok()?,
            last_slot: slot,
            len,
            stu: len,
            last_len: len,
            landed,
        })
    }
}

impl Receiver {
    /// Judges one message.
    pub(super) fn take(&mut self, index: usize, turn: &mut Turn<'_>) {
        let total = self.messages[index].msg_len as usize;
        let dropped = turn.account.dropped_socket_buffer;
        let segment = self.read_control(index, turn.account);
        if turn.account.dropped_socket_buffer > dropped {
            turn.core.on_overrun(turn.now);
        }
        let message = Message {
            index,
            total,
            segment: segment.unwrap_or(total).max(1),
        };
        if self.messages[index].msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            turn.account.dropped_truncated += 1;
            return;
        }
        turn.account.datagrams_received += message.segments() as u64;
        if message.segments() > 1 {
            self.singles = 0;
        } else if total > HEADER_LEN + OPTIONS_LEN {
            self.singles = self.singles.saturating_add(1);
        }
        if self.layouts[index].fits(total, message.segment, self.incoming.around())
            && !self.must_open_elsewhere(index, turn.memory)
        {
            self.take_in_place(message, turn);
        } else {
            self.take_linear(message, turn);
        }
    }

    /// Whether a place is a mapped file, which this process must not touch to open what lies there.
    fn must_open_elsewhere(&self, index: usize, memory: &Registry) -> bool {
        let runs = &self.layouts[index].runs;
        self.incoming.is_protected() && runs.iter().any(|run| memory.is_file(run.span.region))
    }

    /// The segment size, if the kernel merged; counts what it dropped.
    fn read_control(&mut self, index: usize, account: &mut Account) -> Option<usize> {
        let message = &self.messages[index].msg_hdr;
        let mut segment = None;
        // SAFETY: the kernel wrote msg_controllen bytes of well-formed control messages into our
        // buffer; the macros walk them within that length.
        unsafe {
            let mut header = libc::CMSG_FIRSTHDR(message);
            while !header.is_null() {
                let data = libc::CMSG_DATA(header);
                match ((*header).cmsg_level, (*header).cmsg_type) {
                    (libc::SOL_UDP, libc::UDP_GRO) => {
                        segment = usize::try_from(data.cast::<i32>().read_unaligned()).ok();
                    }
                    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                        let overflow = data.cast::<u32>().read_unaligned();
                        account.dropped_socket_buffer +=
                            u64::from(overflow.wrapping_sub(self.overflow));
                        self.overflow = overflow;
                    }
                    _ => {}
                }
                header = libc::CMSG_NXTHDR(message, header);
            }
        }
        segment
    }

    /// The prediction's pattern held: judge the STUs where they lie, consecutive ones as one.
    fn take_in_place(&mut self, message: Message, turn: &mut Turn<'_>) {
        let layout = std::mem::take(&mut self.layouts[message.index]);
        let mut group: Option<Group> = None;
        let around = self.incoming.around();
        let (mut at, mut slot) = (0, layout.slot);
        for run in &layout.runs {
            let mut start = 0;
            while start < run.span.len && at < message.total {
                let datagram = message.segment.min(message.total - at);
                let place = run
                    .span
                    .part(start, u64::from(run.stu).min(run.span.len - start));
                let payload = datagram.saturating_sub(around) as u32;
                let landed = run.span.part(start, u64::from(payload));
                let is_data = datagram > around && Header::is_data(&self.slots[slot].header);
                if !is_data {
                    self.judge_all(group.take(), turn);
                    self.take_control((message.index, slot), place, datagram, turn);
                } else if !self.unseal_in_place(slot, landed, place.len, turn) {
                    self.judge_all(group.take(), turn);
                } else if !self.extend(&mut group, slot, payload, start > 0) {
                    self.judge_all(group.take(), turn);
                    group = Group::of(&self.slots[slot].header, slot, landed);
                }
                at += datagram;
                start += place.len;
                slot += 1;
            }
        }
        self.judge_all(group, turn);
        self.layouts[message.index] = layout;
    }

    /// Adds the STU in `slot` to `group`, if it continues that in header and place.
    fn extend(&self, group: &mut Option<Group>, slot: usize, payload: u32, adjoins: bool) -> bool {
        let Some(group) = group.as_mut().filter(|_| adjoins) else {
            return false;
        };
        let (last, next) = (&self.slots[group.last_slot], &self.slots[slot]);
        if !Header::continues(&last.header, group.last_len, &next.header) {
            return false;
        }
        group.len += payload;
        group.last_len = payload;
        group.last_slot = slot;
        group.landed.len += u64::from(payload);
        true
    }

    /// A control operation whose header lies in a slot, the rest in the place and behind it.
    fn take_control(&mut self, at: (usize, usize), place: Span, len: usize, turn: &mut Turn<'_>) {
        // Gone with its page: as if lost.
        let Some(mut bytes) = self.gather(at, place, len, turn) else {
            return;
        };
        if let Some(opened) = self.unseal(&mut bytes, turn) {
            let shown = &opened[..opened.len().min(CONTROL_DATAGRAM)];
            turn.core.on_control(turn.now, shown, len);
        }
    }

    fn judge_all(&mut self, group: Option<Group>, turn: &mut Turn<'_>) {
        if let Some(group) = group {
            self.judge(&group, turn);
        }
    }

    fn judge(&mut self, group: &Group, turn: &mut Turn<'_>) {
        let (landed, len) = (group.landed, group.len);
        if turn.core.uses_checksums() {
            match send::sum(turn.memory, landed) {
                Ok(sum) if checksum_holds(&group.first, sum) => {}
                Ok(_) => return turn.core.on_dropped(DropReason::Checksum),
                Err(_) => return self.fault = Some(landed.region),
            }
        }
        let placement = turn
            .core
            .on_data(turn.now, &group.first, len, group.stu, Some(landed));
        match placement {
            Placement::InPlace => turn.account.bytes_placed += u64::from(len),
            Placement::Move(span) => {
                let from = turn.memory.source(landed);
                let file = turn.memory.is_file(landed.region);
                self.push_move(from, file, span, MoveCause::Mispredicted, turn);
            }
            Placement::Drop(_) => {}
        }
    }

    /// `file`: the source lies in a mapped file.
    fn push_move(
        &mut self,
        from: Option<*const u8>,
        file: bool,
        span: Span,
        cause: MoveCause,
        turn: &mut Turn<'_>,
    ) {
        let (Some(from), Some(to)) = (from, turn.memory.target(span)) else {
            self.fault = Some(span.region);
            return;
        };
        turn.account.count_moved(cause, span.len);
        self.moves.push(Move {
            from,
            to,
            len: span.len as usize,
            region: span.region,
            file: file || turn.memory.is_file(span.region),
        });
    }

    /// The pattern did not hold: make the message linear, then judge datagram by datagram.
    fn take_linear(&mut self, message: Message, turn: &mut Turn<'_>) {
        let Some(mut bytes) = self.linearize(message, turn.memory) else {
            // Part of it landed in a page that is gone already: as if lost.
            return;
        };
        let cause = if self.layouts[message.index].pairs == 0 {
            MoveCause::Unexpected
        } else if self.must_open_elsewhere(message.index, turn.memory) {
            MoveCause::MappedFile
        } else {
            MoveCause::Pattern
        };
        for datagram in bytes.chunks_mut(message.segment) {
            let len = datagram.len();
            if let Some(opened) = self.unseal(datagram, turn) {
                self.take_opened(opened, len, cause, turn);
            }
        }
        self.linear.push(bytes);
    }

    /// A datagram of `len` bytes, of which `opened` are header and payload, outside any place.
    fn take_opened(&mut self, opened: &[u8], len: usize, cause: MoveCause, turn: &mut Turn<'_>) {
        let header = match Header::parse(opened) {
            Ok(header) if header.op == Op::Data => header,
            _ => {
                let shown = &opened[..opened.len().min(CONTROL_DATAGRAM)];
                turn.core.on_control(turn.now, shown, len);
                return;
            }
        };
        let payload = &opened[HEADER_LEN..];
        if turn.core.uses_checksums() && !checksum_holds(&header, Sum::of(payload)) {
            turn.core.on_dropped(DropReason::Checksum);
            return;
        }
        let len = payload.len() as u32;
        let placement = turn.core.on_data(turn.now, &header, len, len, None);
        if let Placement::Move(span) = placement {
            self.push_move(Some(payload.as_ptr()), false, span, cause, turn);
        }
    }

    /// The message's bytes in one piece. `None` if some lie in a mapped file's page that is gone.
    fn linearize(&self, message: Message, memory: &Registry) -> Option<Box<[u8]>> {
        let Message { index, total, .. } = message;
        let mut bytes = vec![0; total].into_boxed_slice();
        let mut rest = &mut bytes[..];
        let runs = &self.layouts[index].runs;
        let file = runs.iter().any(|run| memory.is_file(run.span.region));
        let message = &self.messages[index].msg_hdr;
        // SAFETY: msg_iov and msg_iovlen still name the iovecs made for this call, which nothing
        // has touched since, and the kernel wrote the first `total` bytes of them.
        unsafe {
            for iov in std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) {
                let (part, others) = rest.split_at_mut(iov.iov_len.min(rest.len()));
                let from = iov.iov_base.cast::<u8>();
                if file {
                    fault::read(from, part).ok()?;
                } else {
                    std::ptr::copy_nonoverlapping(from, part.as_mut_ptr(), part.len());
                }
                rest = others;
            }
        }
        Some(bytes)
    }
}

/// With checksums agreed, one must be there and match.
fn checksum_holds(header: &Header, rest: Sum) -> bool {
    header.checksum != 0 && header.verify(rest).is_ok()
}
