//! Operates on the peer's memory and exchanges messages: exports, puts, gets, atomic operations.

use crate::connection::Connection;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::fetch_op::FetchOp;
use crate::key::{RegionKey, region_name};
use crate::request::Fetch;
use std::mem::MaybeUninit;
use zerolane_lane::{
    ExportAs, ExportedRegion, MessageControl, RegionNumber, WorkFlags, WorkRequest,
};
use zerolane_wire::Rights;

/// A received message.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedMessage {
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
/// use zerolane::{Connection, ExportedRegion, FetchOp, Options, Region, Rights};
/// let table = ExportedRegion::new(Region::anonymous(4096)?).expect("page-aligned");
/// let worker = Worker::new()?.spawn()?;
/// let endpoint = worker.listen("127.0.0.1:0", Options::default()).wait()?;
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
///     assert_eq!(connection.fetch_op(&table, 0, FetchOp::Increment)?, 5);
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
        self.export_as(region, rights, ExportAs::Handle)
    }

    /// Like [`Connection::export`]; the peer can also ask for the region by `name`, of 1 to 32 bytes without NUL.
    ///
    /// # Errors
    /// As for [`Connection::export`]; or the name is too long, or taken.
    pub fn export_named(
        &mut self,
        name: &str,
        region: &ExportedRegion,
        rights: Rights,
    ) -> Result<RegionKey> {
        self.export_as(region, rights, ExportAs::Name(region_name(name)?))
    }

    /// Like [`Connection::export`], under a number of the program's own. The peer need not be told the key: it makes
    /// the key from the number ([`RegionKey::numbered`]). Anything that knows the number has the rights, as far as it
    /// is the peer of this connection.
    ///
    /// Once the export is revoked, the number is free. An operation that the peer posted before then meets whatever has
    /// the number when it arrives: use a number again only if no such operation is left, or if the peer does no harm.
    ///
    /// # Errors
    /// As for [`Connection::export`]; or the number is taken.
    pub fn export_numbered(
        &mut self,
        number: RegionNumber,
        region: &ExportedRegion,
        rights: Rights,
    ) -> Result<RegionKey> {
        self.export_as(region, rights, ExportAs::Number(number))
    }

    fn export_as(
        &mut self,
        region: &ExportedRegion,
        rights: Rights,
        named: ExportAs,
    ) -> Result<RegionKey> {
        let exported = self.driver.export(region.exporting(), rights, named)?;
        Ok(RegionKey::new(exported))
    }

    /// Ends an export on this connection. After this call no late packet writes to the region, and nothing of it is
    /// sent. False if `key` names no export of this end.
    pub fn revoke(&mut self, key: &RegionKey) -> bool {
        self.driver.revoke(key.handle())
    }

    /// Ends all exports of `region` on this connection, under any name or number, including those made by
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

    /// Writes `data` to the peer's memory; returns when it is placed there and visible to every reader.
    ///
    /// # Errors
    /// The refusal in [`Error::Transfer`]; or the connection ended.
    pub fn put(&mut self, to: &RegionKey, offset: u64, data: &[u8]) -> Result<()> {
        self.put_now(to, offset, data, None)
    }

    /// Like [`Connection::put`], and delivers `immediate` to the peer once the data is placed: a
    /// [`Completion`](crate::Completion) there, whose output is
    /// [`Output::Immediate`](crate::request::Output::Immediate).
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
        self.make_room()?;
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
        self.make_room()?;
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
        self.make_room()?;
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
        self.fetch(&Fetch::new(on, offset, op))
    }

    /// Executes `op` exactly once on the word of 32 bits at `offset` of the peer's memory; returns the word's previous
    /// value. The region must have the 8 aligned bytes that hold the word.
    ///
    /// # Errors
    /// As for [`Connection::put`]; or `offset` is not a multiple of 4.
    pub fn fetch_op_u32(&mut self, on: &RegionKey, offset: u64, op: FetchOp<u32>) -> Result<u32> {
        // An honest peer's value has 32 bits.
        Ok(self.fetch(&Fetch::new_u32(on, offset, op))? as u32)
    }

    fn fetch(&mut self, fetch: &Fetch) -> Result<u64> {
        self.make_room()?;
        let done = self.driver.complete(fetch.request()?)?;
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

    /// Sends a message; returns when the peer has received it.
    ///
    /// # Errors
    /// `MessageTooLarge` in [`Error::Transfer`] if the matching receive had less room; or the connection ended.
    pub fn send_message(&mut self, control: &[u8], payload: Option<&[u8]>) -> Result<()> {
        self.make_room()?;
        let payload = payload.unwrap_or_default();
        self.driver.send_message(control, payload)?.result?;
        Ok(())
    }

    /// Receives the next message that no posted receive gets, with its payload in `payload`.
    ///
    /// # Errors
    /// As for [`Connection::send_message`].
    pub fn recv_message(&mut self, payload: Option<&mut [u8]>) -> Result<ReceivedMessage> {
        received(self.driver.receive_message(payload.unwrap_or_default())?)
    }

    /// Like [`Connection::recv_message`], into memory that need not be initialised. The [`ReceivedMessage::payload`] bytes
    /// received are initialised.
    ///
    /// # Errors
    /// As for [`Connection::recv_message`].
    pub fn recv_message_uninit(
        &mut self,
        payload: Option<&mut [MaybeUninit<u8>]>,
    ) -> Result<ReceivedMessage> {
        received(
            self.driver
                .receive_message_uninit(payload.unwrap_or_default())?,
        )
    }
}

fn received(completion: zerolane_lane::Completion) -> Result<ReceivedMessage> {
    Ok(ReceivedMessage {
        payload: completion.result? as usize,
        control: completion.control,
    })
}
