//! Gives up what a tunnel no longer needs when its interface is there: before other threads exist, which would keep it.

use anyhow::{Context, Result};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs,
};
use zerolane_tunnel::config::Interface;

/// The first port that every user may bind, by the system's default.
const FIRST_OPEN_PORT: u16 = 1024;

/// Drops all capabilities but CAP_NET_ADMIN, and CAP_NET_BIND_SERVICE for a low port. Rules of a default route and large
/// receive buffers of later connections need CAP_NET_ADMIN. Commands at the end may need any: with these, all stay.
pub(super) fn give_up(interface: &Interface) -> Result<()> {
    let commands = [&interface.pre_down, &interface.post_down, &interface.dns];
    if commands.iter().any(|it| !it.is_empty()) {
        return Ok(());
    }
    let mut needed = CapabilitySet::NET_ADMIN;
    if interface
        .listen
        .iter()
        .any(|it| it.port() != 0 && it.port() < FIRST_OPEN_PORT)
    {
        needed |= CapabilitySet::NET_BIND_SERVICE;
    }
    let failed = "giving up capabilities";
    let kept = capabilities(None).context(failed)?.permitted & needed;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    clear_ambient_capability_set().context(failed)?;
    set_capabilities(None, sets).context(failed)?;
    set_no_new_privs(true).context(failed)
}
