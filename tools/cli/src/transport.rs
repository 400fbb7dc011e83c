//! What carries connections, as the command line and the configuration say.

use anyhow::Result;
use zerolane::Options;

use crate::bypass::Bypass;
use crate::lane::LaneName;
use crate::security::{ClientArgs, ServerArgs};

/// What the configuration says where the command line says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Configured {
    pub(crate) lane: Option<LaneName>,
    pub(crate) bypass: Option<Bypass>,
}

impl ClientArgs {
    /// Options of connections to `host`, a name and a port, but for their security.
    ///
    /// # Errors
    /// What was said contradicts itself or the address, or cannot be on this host.
    pub(crate) fn transport(&self, host: (&str, u16), configured: Configured) -> Result<Options> {
        let lane = LaneName::to(host.0, self.lane, configured.lane)?;
        let bypass = Bypass::of(lane, self.bypass, configured.bypass);
        let bypass = bypass.beside(!self.paths.is_empty())?;
        Ok(Options {
            profiles: self.profile.into(),
            lane: lane.into(),
            rendezvous: self.rendezvous.clone(),
            device: bypass.device_to(lane, host)?,
            links: self.paths.links(lane)?,
            path_threads: self.paths.threads(),
            ..Options::default()
        })
    }
}

impl ServerArgs {
    /// Options of what listens at `place`, a name and a port, over `lane`, but for their security.
    ///
    /// # Errors
    /// What was said contradicts itself, or cannot be on this host.
    pub(crate) fn transport(
        &self,
        lane: LaneName,
        place: (&str, u16),
        configured: Configured,
    ) -> Result<Options> {
        let bypass = Bypass::of(lane, self.bypass, configured.bypass);
        let bypass = bypass.beside(self.paths.paths > 1)?;
        Ok(Options {
            profiles: self.profile.into(),
            lane: lane.into(),
            rendezvous: self.rendezvous.clone(),
            device: bypass.device_at(lane, place)?,
            neighbour: self.neighbour(),
            paths: self.paths.paths,
            ethernet_paths: self.paths.ethernet_paths,
            udp_paths: self.paths.udp_paths,
            path_threads: self.paths.threads.choice(),
            ..Options::default()
        })
    }
}
