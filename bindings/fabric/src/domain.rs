//! Defines domains: what endpoints, queues and memory belong to.

use crate::engine::Engine;
use crate::fabric::Fabric;
use crate::libfabric::*;
use crate::object::{Head, Object};
use std::sync::Arc;

#[repr(C)]
pub(crate) struct Domain {
    head: Head<fid_domain>,
    fabric: Arc<Fabric>,
}

// SAFETY: repr(C), with the head first.
unsafe impl Object for Domain {
    type Fid = fid_domain;
    const CLASS: u32 = FI_CLASS_DOMAIN;

    fn head(&self) -> &Head<fid_domain> {
        &self.head
    }
}

impl Domain {
    pub(crate) fn new(head: fid_domain, fabric: Arc<Fabric>) -> Domain {
        Domain {
            head: Head::new(head),
            fabric,
        }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.fabric.engine()
    }
}
