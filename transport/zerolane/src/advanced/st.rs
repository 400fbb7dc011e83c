//! Offers remote memory under libst's names, for readers who know the thesis (4.4.2).
//!
//! | libst's word | here |
//! |---|---|
//! | Interface | [`Interface`]: an address that peers connect to |
//! | Connector | [`Interface::connector`], or [`Connector::open`] at the other end |
//! | Bufxrange | [`Bufxrange`]: memory that can be exported |
//! | Mx | [`Mx`]: made by [`Connector::map`], or requested by [`Connector::request_memory_region`] |
//! | Put, Get, FetchOp | [`Connector::put`], [`Connector::get`], [`Connector::fetch_op`] |
//!
//! This is not libst: the library builds headers and answers Clear_To_Send itself, so there is no `tx_ctl` and no
//! `tx_data`. Of libst's six steps to prepare a buffer a [`Region`](crate::Region) does the first two (allocate,
//! align), [`Bufxrange::new`] the fourth and fifth (make Bufx, associate) and [`Connector::map`] the sixth (make an
//! Mx). The third, pinning the memory, does not exist.
//!
//! ```
//! use zerolane::advanced::st::{Bufxrange, Connector, Interface};
//! use zerolane::{FetchOp, Options, Region, Rights};
//! let mut interface = Interface::open("127.0.0.1:0", Options::default())?;
//! let address = interface.endpoint().local_addr();
//! let responder = std::thread::spawn(move || -> zerolane::Result<()> {
//!     let mut connector = interface.connector(None)?.expect("no timeout");
//!     let bufx = Bufxrange::new(Region::anonymous(4096)?).expect("page-aligned");
//!     connector.map("status", &bufx, Rights::ALL)?;
//!     while connector.connection().wait(None).is_ok() {}
//!     Ok(())
//! });
//! let mut connector = Connector::open(address, &Options::default())?;
//! let mx = connector.request_memory_region("status", Rights::ALL)?;
//! connector.put(&mx, 8, &7u64.to_ne_bytes())?;
//! assert_eq!(connector.fetch_op(&mx, 8, FetchOp::Increment)?, 7);
//! let mut word = [0; 8];
//! connector.get(&mx, 8, &mut word)?;
//! assert_eq!(u64::from_ne_bytes(word), 8);
//! connector.close()?;
//! responder.join().unwrap()?;
//! # Ok::<(), zerolane::Error>(())
//! ```

use crate::addresses::ToAddresses;
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::fetch_op::FetchOp;
use std::time::Duration;
use zerolane_lane::Options;
use zerolane_wire::Rights;

/// The index under which the peer knows a Bufxrange, with its handle.
pub use crate::key::RegionKey as Mx;
/// Memory of this end that can be mapped for the peer: consecutive buffers.
pub use zerolane_lane::ExportedRegion as Bufxrange;

/// A network interface's port on which Connectors are made.
#[derive(Debug)]
pub struct Interface(Endpoint);

impl Interface {
    /// Opens the interface at a local address.
    ///
    /// # Errors
    /// As for [`Endpoint::bind`].
    pub fn open(on: impl ToAddresses, options: Options) -> Result<Interface> {
        Ok(Interface(Endpoint::bind(on, options)?))
    }

    /// Waits for the next Connector that a peer opens; `None` on timeout.
    ///
    /// # Errors
    /// As for [`Endpoint::accept`].
    pub fn connector(&mut self, timeout: Option<Duration>) -> Result<Option<Connector>> {
        Ok(self.0.accept(timeout)?.map(Connector))
    }

    /// The underlying endpoint.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.0
    }
}

/// One end of a virtual connection.
#[derive(Debug)]
pub struct Connector(Connection);

impl Connector {
    /// Opens a Connector to the Interface at `to`.
    ///
    /// # Errors
    /// As for [`Connection::connect`].
    pub fn open(to: impl ToAddresses, options: &Options) -> Result<Connector> {
        Ok(Connector(Connection::connect(to, options)?))
    }

    /// Maps a Bufxrange for the peer, which finds it by `name`.
    ///
    /// # Errors
    /// As for [`Connection::export_named`].
    pub fn map(&mut self, name: &str, bufx: &Bufxrange, rights: Rights) -> Result<Mx> {
        self.0.export_named(name, bufx, rights)
    }

    /// Ends a mapping at once. False if there is none.
    pub fn unmap(&mut self, mx: &Mx) -> bool {
        self.0.revoke(mx)
    }

    /// Request_Memory_Region, answered by Memory_Region_Available.
    ///
    /// # Errors
    /// As for [`Connection::open_region`].
    pub fn request_memory_region(&mut self, name: &str, rights: Rights) -> Result<Mx> {
        self.0.open_region(name, rights)
    }

    /// A confirmed Put.
    ///
    /// # Errors
    /// As for [`Connection::put`].
    pub fn put(&mut self, to: &Mx, offset: u64, data: &[u8]) -> Result<()> {
        self.0.put(to, offset, data)
    }

    /// Get.
    ///
    /// # Errors
    /// As for [`Connection::get`].
    pub fn get(&mut self, from: &Mx, offset: u64, into: &mut [u8]) -> Result<()> {
        self.0.get(from, offset, into)
    }

    /// FetchOp and its FetchOp_Complete; returns the word's previous value.
    ///
    /// # Errors
    /// As for [`Connection::fetch_op`].
    pub fn fetch_op(&mut self, on: &Mx, offset: u64, op: FetchOp) -> Result<u64> {
        self.0.fetch_op(on, offset, op)
    }

    /// Ends the connection.
    ///
    /// # Errors
    /// As for [`Connection::close`].
    pub fn close(self) -> Result<()> {
        self.0.close()
    }

    /// The underlying connection, for everything else.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.0
    }
}
