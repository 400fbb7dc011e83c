//! Memory exported to the peer: entered for the length of each turn, so that a revocation by
//! another thread waits for the turn and no later one touches it.

use super::Driver;
use crate::exported::ExportWindow;
use crate::registry::EntryFlags;
use crate::{ExportedRegion, Lane};
use std::sync::Arc;
use zerolane_core::{Instant, PostError, RegionId, RegionName, RemotePlace, RemoteRegion};
use zerolane_wire::Rights;

/// One export.
pub(super) struct Export {
    handle: u32,
    region: RegionId,
    window: Arc<ExportWindow>,
    entered: bool,
}

impl Export {
    fn leave(&mut self) {
        if std::mem::take(&mut self.entered) {
            self.window.leave();
        }
    }
}

/// Leaves the window, also when a panic ended a turn.
impl Drop for Export {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<L: Lane> Driver<L> {
    /// Lets the peer use `memory` with `rights`, by the handle returned or by `name`.
    ///
    /// # Errors
    /// The connection is closed, the name is taken, or too many regions are exported.
    pub fn export(
        &mut self,
        memory: &ExportedRegion,
        rights: Rights,
        name: Option<RegionName>,
    ) -> Result<RemoteRegion, PostError> {
        let window = Arc::clone(memory.window());
        let bounds = window.bounds();
        let access = EntryFlags {
            writable: true,
            file: window.is_file(),
            kept: false,
            shared: true,
        };
        // SAFETY: the window, kept until the entry is closed, keeps the bytes mapped; it is entered
        // before anything follows the entry, and all Rust code goes by `shared`.
        let span = unsafe { self.memory.open(bounds.start, bounds.len, access) };
        match self.core.export(span, rights, name) {
            Ok((handle, mx)) => {
                self.exports.push(Export {
                    handle,
                    region: span.region,
                    window,
                    entered: false,
                });
                let start = RemotePlace {
                    handle,
                    mx,
                    address: 0,
                };
                Ok(RemoteRegion {
                    start,
                    length: span.len,
                    rights,
                })
            }
            Err(error) => {
                self.memory.close(span.region);
                Err(error)
            }
        }
    }

    /// Ends an export on this connection: when this returns, no late packet writes it, and nothing
    /// of it is sent. False if `handle` names none.
    pub fn revoke(&mut self, handle: u32) -> bool {
        let index = self.exports.iter().position(|it| it.handle == handle);
        let Some(index) = index else {
            return false;
        };
        let export = self.exports.swap_remove(index);
        self.core.revoke(self.clock.now(), handle);
        self.memory.close(export.region);
        self.collect();
        true
    }

    /// The region of an export could not be accessed: the export ends.
    pub(super) fn revoke_faulted(&mut self, region: RegionId) {
        let faulted = self.exports.iter().find(|it| it.region == region);
        if let Some(handle) = faulted.map(|it| it.handle) {
            self.revoke(handle);
        }
    }

    /// Enters all exports; those revoked meanwhile end here, too.
    pub(super) fn enter_exports(&mut self, now: Instant) {
        let mut index = 0;
        while let Some(export) = self.exports.get_mut(index) {
            export.entered = export.window.enter();
            if export.entered {
                index += 1;
                continue;
            }
            let export = self.exports.swap_remove(index);
            self.core.revoke(now, export.handle);
            self.memory.close(export.region);
        }
    }

    pub(super) fn leave_exports(&mut self) {
        self.exports.iter_mut().for_each(Export::leave);
    }
}
