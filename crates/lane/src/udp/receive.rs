//! Receiving by forecast: recvmmsg scatters [header][final place] pairs, the checks come after, and
//! what missed is moved (row P2.1).
//!
//! Every message's iovec ends with a spill: whatever is longer than predicted goes there, so that
//! nothing is truncated and a wrong guess costs a copy, never data.

use super::send::{empty_message, iovec};
use super::socket;
use crate::cleanup::{self, Move};
use crate::driver::LaneError;
use crate::{Account, MoveCause, Options, Registry, fault};
use socket2::Socket;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use zerolane_core::{Connection, Forecast, Instant, Placement, RegionId, Run, Span};
use zerolane_wire::{HEADER_LEN, Header, Op, checksum::Sum};

/// Segments in one GRO super-packet: the kernel merges 64 at most.
const MAX_SEGMENTS: usize = 64;
/// Messages of one recvmmsg when every datagram comes on its own. A control operation among them
/// shifts all that follow by one place, so more would cost copies; fewer would cost system calls.
const MAX_MESSAGES: usize = 40;
/// Bytes of payload one recvmmsg is to bring, for the same reason: large datagrams come one a call.
const BATCH: u32 = 96 << 10;
/// Lone datagrams in a row after which no super-packet is expected: the interface merges nothing. A
/// few come in any stream, at the ends of Blocks and as repairs.
const SINGLES: u32 = 16;
/// Bytes of spill a message: the largest datagram or super-packet there is.
const SPILL: usize = 65_536;
/// Bytes of control messages a message: UDP_GRO and SO_RXQ_OVFL.
const CONTROL: usize = 64;
/// Of a control operation, no more is ever looked at.
const CONTROL_DATAGRAM: usize = 128;

/// The prediction for one message: pairs of header slot and place, by runs.
#[derive(Debug, Default)]
struct Layout {
    runs: Vec<Run>,
    pairs: usize,
    /// First of its header slots.
    slot: usize,
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

#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) gro: bool,
    /// Lone datagrams since the last super-packet.
    singles: u32,
    forecast: Forecast,
    layouts: Vec<Layout>,
    headers: Box<[[u8; HEADER_LEN]]>,
    spill: Box<[u8]>,
    controls: Box<[[u64; CONTROL / 8]]>,
    iovs: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
    moves: Vec<Move>,
    /// Messages that did not fit the prediction, made linear.
    linear: Vec<Box<[u8]>>,
    /// A region whose memory was found to be gone.
    fault: Option<RegionId>,
    overflow: u32,
}

// SAFETY: the raw pointers in iovs, messages and moves are made anew for every syscall and mean
// nothing between two.
unsafe impl Send for Receiver {}

impl Receiver {
    pub(super) fn new(socket: &Socket, options: &Options) -> Receiver {
        Receiver {
            gro: options.gro && socket::enable_gro(socket),
            singles: 0,
            forecast: Forecast::default(),
            layouts: (0..MAX_MESSAGES).map(|_| Layout::default()).collect(),
            headers: vec![[0; HEADER_LEN]; MAX_MESSAGES.max(MAX_SEGMENTS)].into(),
            spill: vec![0; MAX_MESSAGES * SPILL].into(),
            controls: vec![[0; CONTROL / 8]; MAX_MESSAGES].into(),
            iovs: Vec::with_capacity(3 * MAX_MESSAGES),
            messages: Vec::with_capacity(MAX_MESSAGES),
            moves: Vec::new(),
            linear: Vec::new(),
            fault: None,
            overflow: 0,
        }
    }

    /// Takes what the socket has, at most one recvmmsg. True if there was anything.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        socket: &Socket,
        core: &mut Connection,
        memory: &Registry,
        account: &mut Account,
        strict: bool,
    ) -> Result<bool, LaneError> {
        let count = self.prepare(core, memory);
        // SAFETY: every message's iovecs name header slots, spill and control space of ours, and
        // places that the registry has open for writing and the core granted: theirs for the call.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.messages.as_mut_ptr(),
                count as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        if received < 0 {
            return self.refused(now, io::Error::last_os_error(), core, memory, account);
        }
        let data_before = core.counters().stus_received;
        for index in 0..received as usize {
            self.take(now, index, core, memory, account);
        }
        if core.counters().stus_received > data_before {
            account.rx_data_syscalls += 1;
        } else {
            account.rx_control_syscalls += 1;
        }
        self.clean_up(strict)?;
        Ok(true)
    }

    fn refused(
        &mut self,
        now: Instant,
        error: io::Error,
        core: &mut Connection,
        memory: &Registry,
        account: &mut Account,
    ) -> Result<bool, LaneError> {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => {
                account.rx_empty_polls += 1;
                Ok(false)
            }
            Some(libc::EINTR) => Ok(true),
            Some(libc::ECONNREFUSED) => {
                core.unreachable(now);
                Ok(true)
            }
            // Errors of datagrams sent earlier, reported here: as if they had been lost.
            Some(libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENETDOWN | libc::EMSGSIZE) => {
                Ok(true)
            }
            // A place could not be written: a mapped file that shrank.
            Some(libc::EFAULT) => match self.find_fault(memory) {
                Some(region) => Err(LaneError::Fault(region)),
                None => Ok(true),
            },
            _ => Err(LaneError::Io(error)),
        }
    }

    /// The region that made the kernel's copy fail. `None` if all that is forecast can be written:
    /// the error was an earlier datagram's, and its Transfer will meet the next one.
    fn find_fault(&self, memory: &Registry) -> Option<RegionId> {
        self.forecast.runs().find_map(|run| {
            let writable = memory.target(run.span).and_then(|start| {
                // SAFETY: the registry has these bytes open, so they are mapped.
                unsafe { fault::is_writable(start, run.span.len as usize) }
            });
            // Where the kernel cannot tell, the first one is suspected.
            (writable != Some(true)).then_some(run.span.region)
        })
    }

    /// Builds iovecs by the forecast. Returns the number of messages.
    fn prepare(&mut self, core: &Connection, memory: &Registry) -> usize {
        let one_by_one = !self.gro || self.singles >= SINGLES;
        let messages = if one_by_one {
            ((BATCH / core.expected_stu()) as usize).clamp(1, MAX_MESSAGES)
        } else {
            1
        };
        core.forecast(MAX_SEGMENTS as u32, &mut self.forecast);
        self.iovs.clear();
        self.messages.clear();
        self.layouts[0].runs.clear();
        self.layouts[0].pairs = 0;
        if one_by_one {
            self.predict_datagrams(messages, memory);
        } else {
            self.predict_super_packet(memory);
        }
        self.point_messages(messages);
        messages
    }

    /// One pair for each of `messages`.
    fn predict_datagrams(&mut self, messages: usize, memory: &Registry) {
        let mut message = 0;
        'runs: for run in self.forecast.runs() {
            let mut at = 0;
            while at < run.span.len && message < messages {
                let len = u64::from(run.stu).min(run.span.len - at);
                let span = run.span.part(at, len);
                let Some(place) = memory.target(span) else {
                    break 'runs;
                };
                let slot = self.headers[message].as_mut_ptr();
                let layout = &mut self.layouts[message];
                layout.runs.clear();
                layout.runs.push(Run { span, stu: run.stu });
                layout.pairs = 1;
                layout.slot = message;
                self.iovs.push(iovec(slot, HEADER_LEN));
                self.iovs.push(iovec(place, len as usize));
                self.iovs
                    .push(iovec(spill(&mut self.spill, message), SPILL));
                at += len;
                message += 1;
            }
        }
        self.leave_unpredicted(message..messages);
    }

    /// These messages have no prediction.
    fn leave_unpredicted(&mut self, messages: Range<usize>) {
        for message in messages {
            self.layouts[message].runs.clear();
            self.layouts[message].pairs = 0;
            self.iovs
                .push(iovec(spill(&mut self.spill, message), SPILL));
        }
    }

    /// All pairs in one message, up to the first short STU: nothing is merged behind that.
    fn predict_super_packet(&mut self, memory: &Registry) {
        let layout = &mut self.layouts[0];
        layout.slot = 0;
        'runs: for run in self.forecast.runs() {
            let Some(start) = memory.target(run.span) else {
                break;
            };
            let mut at = 0;
            while at < run.span.len {
                if layout.pairs == MAX_SEGMENTS {
                    break 'runs;
                }
                let len = u64::from(run.stu).min(run.span.len - at);
                self.iovs
                    .push(iovec(self.headers[layout.pairs].as_mut_ptr(), HEADER_LEN));
                // SAFETY: at + len <= span.len, and all of span is writable at `start`.
                self.iovs
                    .push(iovec(unsafe { start.add(at as usize) }, len as usize));
                layout.pairs += 1;
                at += len;
            }
            layout.runs.push(run);
            if !run.span.len.is_multiple_of(u64::from(run.stu)) {
                break;
            }
        }
        self.iovs.push(iovec(spill(&mut self.spill, 0), SPILL));
    }

    fn point_messages(&mut self, count: usize) {
        let mut next = 0;
        for index in 0..count {
            let iovs = 2 * self.layouts[index].pairs + 1;
            let mut message = empty_message();
            message.msg_iov = &raw mut self.iovs[next];
            message.msg_iovlen = iovs;
            message.msg_control = self.controls[index].as_mut_ptr().cast();
            message.msg_controllen = CONTROL;
            self.messages.push(libc::mmsghdr {
                msg_hdr: message,
                msg_len: 0,
            });
            next += iovs;
        }
    }

    /// Judges one message.
    fn take(
        &mut self,
        now: Instant,
        index: usize,
        core: &mut Connection,
        memory: &Registry,
        account: &mut Account,
    ) {
        let total = self.messages[index].msg_len as usize;
        let segment = self.read_control(index, account).unwrap_or(total).max(1);
        if self.messages[index].msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            account.dropped_truncated += 1;
            return;
        }
        let segments = total.div_ceil(segment).max(1);
        account.datagrams_received += segments as u64;
        if segments > 1 {
            self.singles = 0;
        } else if total > HEADER_LEN + zerolane_wire::OPTIONS_LEN {
            self.singles = self.singles.saturating_add(1);
        }
        if self.fits(index, total, segment) {
            self.take_in_place(now, index, total, segment, core, memory, account);
        } else {
            let unexpected = self.layouts[index].pairs == 0;
            self.take_linear(
                now, index, total, segment, core, memory, account, unexpected,
            );
        }
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

    /// Whether segment n lies in pair n, for all of them: header in its slot, payload in its place.
    fn fits(&self, index: usize, total: usize, segment: usize) -> bool {
        let layout = &self.layouts[index];
        let segments = total.div_ceil(segment);
        if segments == 0 || segments > layout.pairs || segment < HEADER_LEN {
            return false;
        }
        let last = (total - (segments - 1) * segment).saturating_sub(HEADER_LEN) as u64;
        let (payload, mut rest) = ((segment - HEADER_LEN) as u64, segments as u64);
        for run in &layout.runs {
            let stus = u64::from(run.stus());
            let short = run.span.len - (stus - 1) * u64::from(run.stu);
            let place_of_last = if rest == stus {
                short
            } else {
                u64::from(run.stu)
            };
            if rest <= stus {
                return (rest == 1 || payload == u64::from(run.stu)) && last <= place_of_last;
            }
            if payload != u64::from(run.stu) || payload != short {
                return false;
            }
            rest -= stus;
        }
        false
    }

    /// The prediction's pattern held: judge the STUs where they lie, consecutive ones as one.
    #[allow(
        clippy::too_many_arguments,
        reason = "the lane's parts, lent for one call"
    )]
    fn take_in_place(
        &mut self,
        now: Instant,
        index: usize,
        total: usize,
        segment: usize,
        core: &mut Connection,
        memory: &Registry,
        account: &mut Account,
    ) {
        let layout = std::mem::take(&mut self.layouts[index]);
        let mut group: Option<Group> = None;
        let (mut at, mut slot) = (0, layout.slot);
        for run in &layout.runs {
            let mut start = 0;
            while start < run.span.len && at < total {
                let datagram = segment.min(total - at);
                let payload = datagram.saturating_sub(HEADER_LEN) as u32;
                let place = u64::from(run.stu).min(run.span.len - start);
                let continues = start > 0
                    && group.as_ref().is_some_and(|group| {
                        let last = &self.headers[group.last_slot];
                        Header::continues(last, group.last_len, &self.headers[slot])
                    });
                if let (true, Some(group)) = (continues, &mut group) {
                    group.len += payload;
                    group.last_len = payload;
                    group.last_slot = slot;
                    group.landed.len += u64::from(payload);
                } else {
                    if let Some(group) = group.take() {
                        self.judge(now, &group, core, memory, account);
                    }
                    match Header::parse(&self.headers[slot][..datagram.min(HEADER_LEN)]) {
                        Ok(first) if first.op == Op::Data => {
                            let landed = run.span.part(start, u64::from(payload));
                            let (len, stu, last_len) = (payload, payload, payload);
                            group = Some(Group {
                                first,
                                last_slot: slot,
                                len,
                                stu,
                                last_len,
                                landed,
                            });
                        }
                        _ => self.take_control(
                            now,
                            index,
                            slot,
                            &run.span.part(start, place),
                            datagram,
                            core,
                            memory,
                        ),
                    }
                }
                at += datagram;
                start += place;
                slot += 1;
            }
        }
        if let Some(group) = group {
            self.judge(now, &group, core, memory, account);
        }
        self.layouts[index] = layout;
    }

    /// A control operation whose header lies in `slot`, the rest in the place and the spill.
    #[allow(
        clippy::too_many_arguments,
        reason = "the lane's parts, lent for one call"
    )]
    fn take_control(
        &self,
        now: Instant,
        index: usize,
        slot: usize,
        place: &Span,
        len: usize,
        core: &mut Connection,
        memory: &Registry,
    ) {
        let mut bytes = [0; CONTROL_DATAGRAM];
        let count = len.min(CONTROL_DATAGRAM);
        let head = count.min(HEADER_LEN);
        bytes[..head].copy_from_slice(&self.headers[slot][..head]);
        let placed = (count - head).min(place.len as usize);
        if !memory.read(*place, &mut bytes[head..head + placed]) {
            // Gone with its page; as if lost.
            return;
        }
        let spilled = &self.spill[index * SPILL..][..count - head - placed];
        bytes[head + placed..count].copy_from_slice(spilled);
        core.on_control(now, &bytes[..count], len);
    }

    fn judge(
        &mut self,
        now: Instant,
        group: &Group,
        core: &mut Connection,
        memory: &Registry,
        account: &mut Account,
    ) {
        if core.uses_checksums() {
            match super::send::sum(memory, group.landed) {
                Ok(sum) if checksum_holds(&group.first, sum) => {}
                Ok(_) => return core.on_checksum_mismatch(),
                Err(_) => return self.fault = Some(group.landed.region),
            }
        }
        match core.on_data(now, &group.first, group.len, group.stu, Some(group.landed)) {
            Placement::InPlace => account.bytes_placed += u64::from(group.len),
            Placement::Move(span) => {
                let from = memory.source(group.landed);
                let file = memory.is_file(group.landed.region);
                self.push_move(from, file, span, MoveCause::Mispredicted, memory, account);
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
        memory: &Registry,
        account: &mut Account,
    ) {
        let (Some(from), Some(to)) = (from, memory.target(span)) else {
            self.fault = Some(span.region);
            return;
        };
        account.count_moved(cause, span.len);
        self.moves.push(Move {
            from,
            to,
            len: span.len as usize,
            region: span.region,
            file: file || memory.is_file(span.region),
        });
    }

    /// The pattern did not hold: make the message linear, then judge datagram by datagram.
    #[allow(
        clippy::too_many_arguments,
        reason = "the lane's parts, lent for one call"
    )]
    fn take_linear(
        &mut self,
        now: Instant,
        index: usize,
        total: usize,
        segment: usize,
        core: &mut Connection,
        memory: &Registry,
        account: &mut Account,
        unexpected: bool,
    ) {
        let Some(bytes) = self.linearize(index, total, memory) else {
            // Part of it landed in a page that is gone already: as if lost.
            return;
        };
        for datagram in bytes.chunks(segment) {
            let header = match Header::parse(datagram) {
                Ok(header) if header.op == Op::Data => header,
                _ => {
                    let shown = &datagram[..datagram.len().min(CONTROL_DATAGRAM)];
                    core.on_control(now, shown, datagram.len());
                    continue;
                }
            };
            let payload = &datagram[HEADER_LEN..];
            if core.uses_checksums() && !checksum_holds(&header, Sum::of(payload)) {
                core.on_checksum_mismatch();
                continue;
            }
            let len = payload.len() as u32;
            let cause = if unexpected {
                MoveCause::Unexpected
            } else {
                MoveCause::Pattern
            };
            if let Placement::Move(span) = core.on_data(now, &header, len, len, None) {
                self.push_move(Some(payload.as_ptr()), false, span, cause, memory, account);
            }
        }
        self.linear.push(bytes);
    }

    /// The message's bytes in one piece. `None` if some lie in a mapped file's page that is gone.
    fn linearize(&self, index: usize, total: usize, memory: &Registry) -> Option<Box<[u8]>> {
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

    /// Moves what missed its place. In strict mode that is the last thing done: what is complete by
    /// then is right, and the connection ends.
    fn clean_up(&mut self, strict: bool) -> Result<(), LaneError> {
        let bytes: usize = self.moves.iter().map(|it| it.len).sum();
        // SAFETY: sources are places or linear buffers that live until the end of this function;
        // targets are spans the core accepted once each, so they are disjoint, and open for writing.
        let moved = unsafe { cleanup::perform(&mut self.moves) };
        self.linear.clear();
        let fault = self.fault.take().or(moved.err());
        match fault {
            Some(region) => Err(LaneError::Fault(region)),
            None if strict && bytes > 0 => Err(LaneError::Strict { bytes }),
            None => Ok(()),
        }
    }
}

/// With checksums agreed, one must be there and match.
fn checksum_holds(header: &Header, rest: Sum) -> bool {
    header.checksum != 0 && header.verify(rest).is_ok()
}

fn spill(spill: &mut [u8], message: usize) -> *mut u8 {
    spill[message * SPILL..][..SPILL].as_mut_ptr()
}
