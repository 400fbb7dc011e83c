//! Operates on the peer's memory and exchanges messages: exports, puts, gets, atomic operations.

use crate::connection::Connection;
use crate::error::{Error, Posted, Result};
use crate::key::RegionKey;
use crate::work::Work;
use std::mem::MaybeUninit;
use zerolane_lane::limits::{self, MAX_INLINE};
use zerolane_lane::{
    Atomic, ExportedRegion, Memory, MessageControl, NotPosted, PostError, Region, RegionName,
    RemotePlace, TransferId, WorkFlags, WorkRequest,
};
use zerolane_wire::{FetchOpKind, Rights};

/// An atomic operation on an aligned 64-bit word, in the byte order of the memory's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FetchOp {
    /// Adds, wrapping.
    Add(u64),
    /// Adds one, wrapping.
    Increment,
    /// Subtracts one, wrapping.
    Decrement,
    /// Stores zero.
    Clear,
    /// Stores this value.
    Swap(u64),
    /// Stores `new` if the word is `expected`.
    CompareAndSwap {
        /// The expected value.
        expected: u64,
        /// The value to store.
        new: u64,
    },
}

impl From<FetchOp> for Atomic {
    fn from(op: FetchOp) -> Atomic {
        let (kind, operand, comparand) = match op {
            FetchOp::Add(n) => (FetchOpKind::Add, n, 0),
            FetchOp::Increment => (FetchOpKind::Increment, 0, 0),
            FetchOp::Decrement => (FetchOpKind::Decrement, 0, 0),
            FetchOp::Clear => (FetchOpKind::Clear, 0, 0),
            FetchOp::Swap(new) => (FetchOpKind::Swap, new, 0),
            FetchOp::CompareAndSwap { expected, new } => {
                (FetchOpKind::CompareAndSwap, new, expected)
            }
        };
        Atomic {
            kind,
            operand,
            comparand,
        }
    }
}

/// A received message.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// The message's control.
    pub control: MessageControl,
    /// Bytes of its payload.
    pub payload: usize,
}

/// # Remote memory
///
/// Operations on the peer's memory take effect exactly once, in the order of posting; the exact rules are in
/// `docs/reference/memory-model.md`. An operation that is refused (out of bounds, no right, revoked) completes with
/// that reason, and the connection stays open.
///
/// **A passive target**, as with RDMA: a worker in a thread of its own
/// ([`Worker::spawn`](crate::worker::Worker::spawn)) serves exported memory while the owner computes or sleeps.
///
/// ```
/// use std::sync::atomic::Ordering;
/// use zerolane::worker::Worker;
/// use zerolane::{Connection, ExportedRegion, Options, Region, Rights};
/// let table = ExportedRegion::new(Region::anonymous(4096)?).expect("page-aligned");
/// let worker = Worker::new()?.spawn()?;
/// let endpoint = worker.listen("127.0.0.1:0".parse().unwrap(), Options::default()).wait()?;
/// endpoint.export("table", &table, Rights::ALL).wait()?;
/// let address = endpoint.local_addr();
/// // From here on the owner makes no call for its peers.
/// let peer = std::thread::spawn(move || -> zerolane::Result<()> {
///     let mut connection = Connection::connect(address, &Options::default())?;
///     let table = connection.open_region("table", Rights::ALL)?;
///     connection.put(&table, 64, b"placed in the peer's memory")?;
///     let mut back = [0; 6];
///     connection.get(&table, 64, &mut back)?;
///     assert_eq!(&back, b"placed");
///     assert_eq!(connection.fetch_add(&table, 0, 5)?, 0);
///     assert_eq!(connection.fetch_inc(&table, 0)?, 5);
///     connection.close()
/// });
/// peer.join().unwrap()?;
/// assert_eq!(table.word(0).load(Ordering::Acquire), 6);
/// # Ok::<(), zerolane::Error>(())
/// ```
///
/// Without a worker's thread **the owner must make calls**: the peer's operations take effect during calls on the
/// exporting `Connection`, and wait between them. This is faster for a target that has nothing else to do.
///
/// ```
/// use std::sync::atomic::Ordering;
/// use zerolane::{Connection, Endpoint, ExportedRegion, Options, Region, Rights};
/// let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
/// let address = endpoint.local_addr();
/// let owner = std::thread::spawn(move || -> zerolane::Result<u64> {
///     let mut connection = endpoint.accept(None)?.expect("no timeout");
///     let table = ExportedRegion::new(Region::anonymous(4096)?).expect("page-aligned");
///     connection.export_named("table", &table, Rights::ALL)?;
///     while connection.wait(None).is_ok() {} // until the peer is done
///     Ok(table.word(0).load(Ordering::Acquire))
/// });
/// let mut connection = Connection::connect(address, &Options::default())?;
/// let table = connection.open_region("table", Rights::ALL)?;
/// assert_eq!(connection.fetch_add(&table, 0, 6)?, 0);
/// connection.close()?;
/// assert_eq!(owner.join().unwrap()?, 6);
/// # Ok::<(), zerolane::Error>(())
/// ```
impl Connection {
    /// Lets the peer use `region` with `rights`; give the returned key to the peer.
    ///
    /// # Errors
    /// The connection is closed, or too many regions are exported on it.
    pub fn export(&mut self, region: &ExportedRegion, rights: Rights) -> Result<RegionKey> {
        Ok(RegionKey::new(self.driver.export(
            region.exporting(),
            rights,
            None,
        )?))
    }

    /// Like [`Connection::export`]; the peer can also ask for the region by `name`, of at most 32 bytes.
    ///
    /// # Errors
    /// As for [`Connection::export`]; or the name is too long, or taken.
    pub fn export_named(
        &mut self,
        name: &str,
        region: &ExportedRegion,
        rights: Rights,
    ) -> Result<RegionKey> {
        let name = Some(region_name(name)?);
        Ok(RegionKey::new(self.driver.export(
            region.exporting(),
            rights,
            name,
        )?))
    }

    /// Ends an export on this connection. After this call no late packet writes to the region, and nothing of it is
    /// sent. False if `key` names no export of this end.
    pub fn revoke(&mut self, key: &RegionKey) -> bool {
        self.driver.revoke(key.handle())
    }

    /// Ends all exports of `region` on this connection, under any name, including those made by
    /// [`Worker::export`](crate::worker::Worker::export) for an endpoint. Other peers keep their rights. False if there
    /// is none.
    pub fn revoke_region(&mut self, region: &ExportedRegion) -> bool {
        self.driver.revoke_region(region)
    }

    /// Asks the peer for the region that it exported as `name`.
    ///
    /// # Errors
    /// `Refused` with `Unknown` or `Denied` inside [`Error::Transfer`]; or the connection ended.
    pub fn open_region(&mut self, name: &str, rights: Rights) -> Result<RegionKey> {
        let name = region_name(name)?;
        Ok(RegionKey::new(self.driver.open_region(name, rights)??))
    }

    /// Like [`Connection::open_region`], without waiting. The completion's [`region`](crate::Completion::region) is the
    /// key.
    ///
    /// # Errors
    /// See [`PostError`]; or the name is too long.
    pub fn post_open_region(
        &mut self,
        name: &str,
        rights: Rights,
        work: impl Into<Work>,
    ) -> Result<TransferId> {
        let name = region_name(name)?;
        let request = WorkRequest::OpenRegion { name, rights };
        Ok(self.driver.post_bare(request, work.into().report())?)
    }

    /// Writes `data` to the peer's memory; returns when it is placed there and visible to every reader.
    ///
    /// # Errors
    /// The refusal in [`Error::Transfer`]; or the connection ended.
    pub fn put(&mut self, to: &RegionKey, offset: u64, data: &[u8]) -> Result<()> {
        self.put_now(to, offset, data, None)
    }

    /// Like [`Connection::put`], and delivers `immediate` to the peer once the data is placed: a
    /// [`Completion`](crate::Completion) there, of kind [`WorkKind::Immediate`](crate::request::WorkKind::Immediate).
    ///
    /// # Errors
    /// As for [`Connection::put`].
    pub fn put_with_immediate(
        &mut self,
        to: &RegionKey,
        offset: u64,
        data: &[u8],
        immediate: u32,
    ) -> Result<()> {
        self.put_now(to, offset, data, Some(immediate))
    }

    fn put_now(
        &mut self,
        to: &RegionKey,
        offset: u64,
        data: &[u8],
        immediate: Option<u32>,
    ) -> Result<()> {
        let put = WorkRequest::Put {
            place: to.place(offset, data.len() as u64, Rights::WRITE)?,
            immediate,
            flags: WorkFlags::default(),
        };
        self.driver.lend_source(put, data)?.result?;
        Ok(())
    }

    /// Reads bytes from the peer's memory.
    ///
    /// # Errors
    /// As for [`Connection::put`].
    pub fn get(&mut self, from: &RegionKey, offset: u64, into: &mut [u8]) -> Result<()> {
        let get = WorkRequest::Get {
            place: from.place(offset, into.len() as u64, Rights::READ)?,
            flags: WorkFlags::default(),
        };
        self.driver.lend_target(get, into)?.result?;
        Ok(())
    }

    /// Like [`Connection::get`], into memory that need not be initialised. On success all of it is.
    ///
    /// # Errors
    /// As for [`Connection::get`].
    pub fn get_uninit(
        &mut self,
        from: &RegionKey,
        offset: u64,
        into: &mut [MaybeUninit<u8>],
    ) -> Result<()> {
        let get = WorkRequest::Get {
            place: from.place(offset, into.len() as u64, Rights::READ)?,
            flags: WorkFlags::default(),
        };
        self.driver.lend_target_uninit(get, into)?.result?;
        Ok(())
    }

    /// Executes `op` exactly once on the word at `offset` of the peer's memory; returns the word's previous value.
    ///
    /// # Errors
    /// As for [`Connection::put`]; or `offset` is not a multiple of 8.
    pub fn fetch_op(&mut self, on: &RegionKey, offset: u64, op: FetchOp) -> Result<u64> {
        let done = self
            .driver
            .complete(fetch_op(on, offset, op, WorkFlags::default())?)?;
        done.result?;
        Ok(done.value)
    }

    /// [`FetchOp::Add`].
    ///
    /// # Errors
    /// As for [`Connection::fetch_op`].
    pub fn fetch_add(&mut self, on: &RegionKey, offset: u64, n: u64) -> Result<u64> {
        self.fetch_op(on, offset, FetchOp::Add(n))
    }

    /// [`FetchOp::Increment`].
    ///
    /// # Errors
    /// As for [`Connection::fetch_op`].
    pub fn fetch_inc(&mut self, on: &RegionKey, offset: u64) -> Result<u64> {
        self.fetch_op(on, offset, FetchOp::Increment)
    }

    /// [`FetchOp::Decrement`].
    ///
    /// # Errors
    /// As for [`Connection::fetch_op`].
    pub fn fetch_dec(&mut self, on: &RegionKey, offset: u64) -> Result<u64> {
        self.fetch_op(on, offset, FetchOp::Decrement)
    }

    /// [`FetchOp::Clear`].
    ///
    /// # Errors
    /// As for [`Connection::fetch_op`].
    pub fn fetch_clear(&mut self, on: &RegionKey, offset: u64) -> Result<u64> {
        self.fetch_op(on, offset, FetchOp::Clear)
    }

    /// [`FetchOp::Swap`].
    ///
    /// # Errors
    /// As for [`Connection::fetch_op`].
    pub fn swap(&mut self, on: &RegionKey, offset: u64, new: u64) -> Result<u64> {
        self.fetch_op(on, offset, FetchOp::Swap(new))
    }

    /// [`FetchOp::CompareAndSwap`]: the swap took place if the returned value equals `expected`.
    ///
    /// # Errors
    /// As for [`Connection::fetch_op`].
    pub fn compare_and_swap(
        &mut self,
        on: &RegionKey,
        offset: u64,
        expected: u64,
        new: u64,
    ) -> Result<u64> {
        self.fetch_op(on, offset, FetchOp::CompareAndSwap { expected, new })
    }

    /// Posts a put of `memory`; several pieces are placed one after another. It completes when the data is placed and
    /// visible at the peer.
    ///
    /// # Errors
    /// See [`PostError`]. The memory comes back.
    pub fn post_put(
        &mut self,
        to: &RegionKey,
        offset: u64,
        memory: impl Into<Memory>,
        work: Work,
    ) -> Posted<Memory> {
        let memory = memory.into();
        match to.place(offset, memory.len() as u64, Rights::WRITE) {
            Ok(place) => self
                .driver
                .post_source(put(place, work), work.report(), memory),
            Err(reason) => Err(NotPosted { reason, memory }),
        }
    }

    /// Whether a put of `bytes` to `offset` would be sent at once. Otherwise it waits, or is announced, which takes
    /// another round trip, and messages posted after it wait until it completes.
    pub fn puts_at_once(&mut self, to: &RegionKey, offset: u64, bytes: u64) -> bool {
        let place = to.place(offset, bytes, Rights::WRITE);
        place.is_ok_and(|place| self.driver.puts_at_once(place, bytes))
    }

    /// Posts a put of a copy of `data`, at most [`MAX_INLINE`](crate::request::MAX_INLINE) bytes. It completes locally,
    /// which is the weaker guarantee: `data` may change as soon as this call returns. Puts posted together are sent in
    /// one burst.
    ///
    /// # Errors
    /// See [`PostError`]; after `Full`, call [`Connection::poll`] and try again.
    pub fn post_put_inline(
        &mut self,
        to: &RegionKey,
        offset: u64,
        data: &[u8],
        work: Work,
    ) -> Result<TransferId> {
        let place = to.place(offset, data.len() as u64, Rights::WRITE)?;
        if data.len() > MAX_INLINE {
            return Err(Error::NotInline { len: data.len() });
        }
        Ok(self
            .driver
            .post_inline(put(place, work), work.report(), data)?)
    }

    /// Posts a put of several pieces, each to its own offset: gathered here, scattered there. One completion, with all
    /// memory in [`Completion::pieces`](crate::Completion::pieces), comes when all are placed; an immediate of `work`
    /// goes with the last piece.
    ///
    /// # Errors
    /// See [`PostError`]; `TooManyPieces` for more than 4096, `Full` if there is no room for all of them now. All
    /// pieces come back. If the key was forged, the pieces before a refused one may still be written, without a
    /// completion.
    pub fn post_put_vectored(
        &mut self,
        to: &RegionKey,
        pieces: Vec<(u64, Memory)>,
        work: Work,
    ) -> Posted<Vec<(u64, Memory)>> {
        self.post_pieces(
            to,
            pieces,
            Memory::len,
            Rights::WRITE,
            work,
            |connection, at, piece, work| connection.post_put(to, at, piece, work),
        )
    }

    /// Posts a get into `into`.
    ///
    /// # Errors
    /// See [`PostError`]. The region comes back.
    pub fn post_get(
        &mut self,
        from: &RegionKey,
        offset: u64,
        into: Region,
        work: Work,
    ) -> Posted<Region> {
        match from.place(offset, into.len() as u64, Rights::READ) {
            Ok(place) => {
                let flags = work.flags();
                self.driver
                    .post_target(WorkRequest::Get { place, flags }, work.report(), into)
            }
            Err(reason) => Err(NotPosted {
                reason,
                memory: into,
            }),
        }
    }

    /// Posts a get of several pieces, each from its own offset. Otherwise like [`Connection::post_put_vectored`].
    ///
    /// # Errors
    /// As for [`Connection::post_put_vectored`].
    pub fn post_get_vectored(
        &mut self,
        from: &RegionKey,
        pieces: Vec<(u64, Region)>,
        work: Work,
    ) -> Posted<Vec<(u64, Region)>> {
        self.post_pieces(
            from,
            pieces,
            |piece| piece.len(),
            Rights::READ,
            work,
            |connection, at, piece, work| connection.post_get(from, at, piece, work),
        )
    }

    /// Posts all pieces with `post`, as one request.
    fn post_pieces<M>(
        &mut self,
        key: &RegionKey,
        pieces: Vec<(u64, M)>,
        len: impl Fn(&M) -> usize,
        right: Rights,
        work: Work,
        mut post: impl FnMut(&mut Connection, u64, M, Work) -> Posted<M>,
    ) -> Posted<Vec<(u64, M)>> {
        let mut lens = pieces.iter().map(|(at, piece)| (*at, len(piece) as u64));
        let outside = lens.find_map(|(at, len)| key.place(at, len, right).err());
        if let Some(reason) = outside {
            return Err(NotPosted {
                reason,
                memory: pieces,
            });
        }
        let room = match pieces.len() {
            count if count > limits::MAX_POSTED => Err(PostError::TooManyPieces),
            count if count > self.driver.room_for_operations() => Err(PostError::Full),
            _ => Ok(()),
        };
        if let Err(reason) = room {
            return Err(NotPosted {
                reason,
                memory: pieces,
            });
        }
        let (count, mut ids) = (pieces.len(), vec![]);
        let mut pieces = pieces.into_iter().enumerate();
        while let Some((index, (at, piece))) = pieces.next() {
            match post(self, at, piece, part(work, index, count)) {
                Ok(id) => ids.push(id),
                Err(NotPosted { reason, memory }) => {
                    // The caller gets no identifier, so the group's completion is not reported.
                    self.begin_group(ids, false);
                    let rest = pieces.map(|(_, piece)| piece);
                    let memory = std::iter::once((at, memory)).chain(rest).collect();
                    return Err(NotPosted { reason, memory });
                }
            }
        }
        self.begin_group(ids, work.signalled).ok_or(NotPosted {
            reason: PostError::NoPieces,
            memory: Vec::new(),
        })
    }

    /// Posts an atomic operation. Its completion's `value` is the word's previous value.
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn post_fetch_op(
        &mut self,
        on: &RegionKey,
        offset: u64,
        op: FetchOp,
        work: Work,
    ) -> Result<TransferId> {
        let request = fetch_op(on, offset, op, work.flags())?;
        Ok(self.driver.post_bare(request, work.report())?)
    }

    /// Posts a message: up to [`MAX_CONTROL`](crate::request::MAX_CONTROL) bytes of control, which are copied, and a
    /// payload of any length, in one piece or several. It goes to the peer's next [`Connection::post_message_recv`],
    /// and waits for one if necessary.
    ///
    /// # Errors
    /// See [`PostError`]. The payload comes back.
    pub fn post_message(
        &mut self,
        control: &[u8],
        payload: Option<Memory>,
        work: Work,
    ) -> Posted<Option<Memory>> {
        self.driver
            .post_message(control, payload, work.flags(), work.report())
    }

    /// Posts a receive of a message: the n-th receive gets the n-th message. A message with payload needs a region with
    /// room for it. While the receive waits, keep-alives test whether a silent peer is alive
    /// ([`Options::idle_timeout`](crate::Options::idle_timeout)).
    ///
    /// # Errors
    /// See [`PostError`]. The region comes back.
    pub fn post_message_recv(&mut self, payload: Option<Region>) -> Posted<Option<Region>> {
        self.post_message_recv_with(payload, Work::default())
    }

    /// Like [`Connection::post_message_recv`], with a context. Other fields of `work` are ignored.
    ///
    /// # Errors
    /// As for [`Connection::post_message_recv`].
    pub fn post_message_recv_with(
        &mut self,
        payload: Option<Region>,
        work: impl Into<Work>,
    ) -> Posted<Option<Region>> {
        self.driver
            .post_message_receive(work.into().report(), payload)
    }

    /// Sends a message; returns when the peer has received it.
    ///
    /// # Errors
    /// `MessageTooLarge` in [`Error::Transfer`] if the matching receive had less room; or the connection ended.
    pub fn send_message(&mut self, control: &[u8], payload: Option<&[u8]>) -> Result<()> {
        let payload = payload.unwrap_or_default();
        self.driver.send_message(control, payload)?.result?;
        Ok(())
    }

    /// Receives the next message that no posted receive gets, with its payload in `payload`.
    ///
    /// # Errors
    /// As for [`Connection::send_message`].
    pub fn recv_message(&mut self, payload: Option<&mut [u8]>) -> Result<Message> {
        received(self.driver.receive_message(payload.unwrap_or_default())?)
    }

    /// Like [`Connection::recv_message`], into memory that need not be initialised. The [`Message::payload`] bytes
    /// received are initialised.
    ///
    /// # Errors
    /// As for [`Connection::recv_message`].
    pub fn recv_message_uninit(
        &mut self,
        payload: Option<&mut [MaybeUninit<u8>]>,
    ) -> Result<Message> {
        received(
            self.driver
                .receive_message_uninit(payload.unwrap_or_default())?,
        )
    }

    fn begin_group(&mut self, ids: Vec<TransferId>, signalled: bool) -> Option<TransferId> {
        let &last = ids.last()?;
        self.vectored.begin(ids, signalled);
        Some(last)
    }
}

fn received(completion: zerolane_lane::Completion) -> Result<Message> {
    Ok(Message {
        payload: completion.result? as usize,
        control: completion.control,
    })
}

/// The options of piece `index` of `count`: the first carries the fence, the last the immediate. All are signalled.
fn part(work: Work, index: usize, count: usize) -> Work {
    Work {
        signalled: true,
        fence: work.fence && index == 0,
        immediate: work.immediate.filter(|_| index + 1 == count),
        ..work
    }
}

fn put(place: RemotePlace, work: Work) -> WorkRequest<'static> {
    WorkRequest::Put {
        place,
        immediate: work.immediate,
        flags: work.flags(),
    }
}

fn fetch_op(
    key: &RegionKey,
    offset: u64,
    op: FetchOp,
    flags: WorkFlags,
) -> Result<WorkRequest<'static>> {
    if !offset.is_multiple_of(8) {
        return Err(PostError::Misaligned.into());
    }
    Ok(WorkRequest::FetchOp {
        place: key.place(offset, 8, Rights::ATOMIC)?,
        atomic: op.into(),
        flags,
    })
}

pub(crate) fn region_name(name: &str) -> Result<RegionName> {
    let mut padded = RegionName::default();
    let place = padded.get_mut(..name.len());
    place
        .ok_or(Error::NameTooLong { len: name.len() })?
        .copy_from_slice(name.as_bytes());
    Ok(padded)
}
