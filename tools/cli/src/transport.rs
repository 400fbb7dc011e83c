//! Builds transport options from the command line and the configuration.

use anyhow::Result;
use zerolane::Options;

use crate::bypass::Bypass;
use crate::lane::LaneName;
use crate::security::{ClientArgs, ServerArgs};

/// Settings of the configuration, used where the command line has none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Configured {
    pub(crate) lane: Option<LaneName>,
    pub(crate) bypass: Option<Bypass>,
}

impl ClientArgs {
    /// Transport options for a connection to `host` (name and port), without security.
    ///
    /// # Errors
    /// Options contradict each other or the address, or are not possible on this host.
    pub(crate) fn transport(&self, host: (&str, u16), configured: Configured) -> Result<Options> {
        let lane = LaneName::to(host.0, self.lane, configured.lane)?;
        let bypass = Bypass::of(lane, self.bypass, configured.bypass);
        let bypass = bypass.beside(!self.paths.is_empty())?;
        let (device, links) = (bypass.device_to(lane, host)?, self.paths.links(lane)?);
        Ok(Options::default().with(|it| {
            it.profiles = self.profile.into();
            it.lane.choice = lane.into();
            it.lane.rendezvous = self.rendezvous.clone();
            it.lane.device = device;
            it.paths.links = links;
            it.paths.threads = self.paths.threads();
        }))
    }
}

impl ServerArgs {
    /// Transport options for a listener at `place` (name and port) over `lane`, without security.
    ///
    /// # Errors
    /// Options contradict each other, or are not possible on this host.
    pub(crate) fn transport(
        &self,
        lane: LaneName,
        place: (&str, u16),
        configured: Configured,
    ) -> Result<Options> {
        let bypass = Bypass::of(lane, self.bypass, configured.bypass);
        let bypass = bypass.beside(self.paths.paths > 1)?;
        let device = bypass.device_at(lane, place)?;
        Ok(Options::default().with(|it| {
            it.profiles = self.profile.into();
            it.lane.choice = lane.into();
            it.lane.rendezvous = self.rendezvous.clone();
            it.lane.device = device;
            it.lane.neighbour = self.neighbour();
            it.paths.most = self.paths.paths;
            it.paths.ethernet = self.paths.ethernet_paths;
            it.paths.udp = self.paths.udp_paths;
            it.paths.threads = self.paths.threads.choice();
        }))
    }
}
