//! Defines fabrics: one worker, and the thread that drives it.

use crate::engine::Engine;
use crate::errno::Outcome;
use crate::libfabric::*;
use crate::object::{Head, Object};
use crate::progress::Progress;
use crate::settings::Settings;
use std::sync::Arc;

#[repr(C)]
pub(crate) struct Fabric {
    head: Head<fid_fabric>,
    engine: Arc<Engine>,
    progress: Option<Progress>,
}

// SAFETY: repr(C), with the head first.
unsafe impl Object for Fabric {
    type Fid = fid_fabric;
    const CLASS: u32 = FI_CLASS_FABRIC;

    fn head(&self) -> &Head<fid_fabric> {
        &self.head
    }
}

impl Fabric {
    /// # Errors
    /// The system has no descriptor or thread left.
    pub(crate) fn new(head: fid_fabric, settings: Settings) -> Outcome<Fabric> {
        let engine = Arc::new(Engine::new(settings)?);
        let progress = Progress::start(&engine)?;
        Ok(Fabric {
            head: Head::new(head),
            engine,
            progress: Some(progress),
        })
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        // What was injected still leaves.
        let _ = self.engine.linger();
        self.progress.take();
    }
}
