//! Exports memory to the peer. Each turn enters the connection's grace period if anything is exported. A revocation by
//! another thread waits for the turn, and the next turn ends the export before anything else.

use super::Driver;
use crate::lane::Lane;
use crate::memory::exported::{ExportWindow, Exporter};
use crate::memory::registry::EntryKind;
use crate::memory::{ExportedRegion, Exporting};
use std::collections::HashMap;
use std::sync::Arc;
use zerolane_core::{ExportAs, Instant, PostError, RegionId, RemotePlace, RemoteRegion};
use zerolane_wire::Rights;

/// One export.
struct Export {
    region: RegionId,
    window: Arc<ExportWindow>,
}

/// The exports of one connection, by handle.
#[derive(Default)]
pub(super) struct Exports {
    by_handle: HashMap<u32, Export>,
    exporter: Arc<Exporter>,
    /// Whether a turn is in progress.
    entered: bool,
}

impl Exports {
    /// Begins a turn. True if some exports were revoked.
    fn enter(&mut self) -> bool {
        // A panic may have left it entered.
        self.leave();
        // Without exports, none can be added within the turn.
        self.entered = !self.by_handle.is_empty();
        self.entered && self.exporter.grace.enter()
    }

    pub(super) fn leave(&mut self) {
        if std::mem::take(&mut self.entered) {
            self.exporter.grace.leave();
        }
    }

    /// Removes an export.
    fn remove(&mut self, handle: u32) -> Option<RegionId> {
        let export = self.by_handle.remove(&handle)?;
        export.window.part(&self.exporter, handle);
        Some(export.region)
    }
}

/// Ends the turn, even after a panic in it.
impl Drop for Exports {
    fn drop(&mut self) {
        self.leave();
        for (handle, export) in self.by_handle.drain() {
            export.window.part(&self.exporter, handle);
        }
    }
}

impl<L: Lane> Driver<L> {
    /// Lets the peer use `memory` with `rights`, as `named`.
    ///
    /// # Errors
    /// The connection is closed, the name or number is taken, too many regions are exported, or the connection or the
    /// memory belongs to the parent of this process.
    pub fn export(
        &mut self,
        memory: Exporting,
        rights: Rights,
        named: ExportAs,
    ) -> Result<RemoteRegion, PostError> {
        self.check_poster()?;
        // A name or number revoked by another thread is free, and the next turn must not take the new export for it.
        self.end_revoked(self.clock.now());
        let window = Arc::clone(&memory.0);
        if !window.is_of_this_process() {
            return Err(PostError::Forked);
        }
        let bounds = window.bounds();
        let file = window.is_file();
        let kind = EntryKind::Exported { file };
        // SAFETY: the window, kept until the entry is closed, keeps the bytes mapped until it is revoked. A revocation
        // waits for this connection's turn, and the next turn closes the entry before it follows any. All Rust code
        // accesses the bytes through `shared`.
        let span = unsafe { self.memory.open(bounds.start, bounds.len, kind) };
        match self.core.export(span, rights, named) {
            Ok((handle, mx)) => {
                let live = window.join(&self.exports.exporter, handle);
                let region = span.region;
                let export = Export { region, window };
                self.exports.by_handle.insert(handle, export);
                let start = RemotePlace {
                    handle,
                    mx,
                    address: 0,
                };
                self.lane.lend(&memory, start, rights);
                if !live {
                    self.end_export(self.clock.now(), handle);
                }
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

    /// Ends an export on this connection. On return no late packet writes it, and none of its bytes are sent. False if
    /// `handle` names no export, or belongs to the parent of this process.
    pub fn revoke(&mut self, handle: u32) -> bool {
        if !self.process.is_current() {
            return false;
        }
        let revoked = self.end_export(self.clock.now(), handle);
        self.collect();
        revoked
    }

    /// Does the same for all exports of `memory` on this connection. False if there are none.
    pub fn revoke_region(&mut self, memory: &ExportedRegion) -> bool {
        let exports = self.exports.by_handle.iter();
        let of_it = exports.filter(|(_, it)| Arc::ptr_eq(&it.window, memory.window()));
        let handles: Vec<u32> = of_it.map(|(&handle, _)| handle).collect();
        let revoked = handles.iter().filter(|&&handle| self.revoke(handle));
        revoked.count() > 0
    }

    fn end_export(&mut self, now: Instant, handle: u32) -> bool {
        let Some(region) = self.exports.remove(handle) else {
            return false;
        };
        self.core.revoke(now, handle);
        self.memory.close(region);
        self.lane.take_back(handle);
        true
    }

    /// Ends the export of a region that could not be accessed.
    pub(super) fn revoke_faulted(&mut self, region: RegionId) {
        let mut exports = self.exports.by_handle.iter();
        let faulted = exports.find(|(_, it)| it.region == region);
        if let Some((&handle, _)) = faulted {
            self.end_export(self.clock.now(), handle);
        }
    }

    /// Begins a turn, and ends exports that were revoked meanwhile.
    pub(super) fn enter_exports(&mut self, now: Instant) {
        if self.exports.enter() {
            self.end_revoked(now);
        }
    }

    /// Ends exports whose memory other threads revoked.
    fn end_revoked(&mut self, now: Instant) {
        for handle in self.exports.exporter.take_revoked() {
            self.end_export(now, handle);
        }
    }
}

#[cfg(test)]
#[path = "exports_tests.rs"]
mod tests;
