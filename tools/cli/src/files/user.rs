//! Gives up root, and becomes the user of `--user`.

use std::ffi::CString;

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::unistd::{Uid, User, geteuid, initgroups, setgid, setuid};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities};

use crate::exit::Exit;

/// Ports from here on are open to every user.
const FIRST_OPEN_PORT: u16 = 1024;

/// The user `name`.
pub(super) fn find(name: &str) -> Result<User> {
    let user = User::from_name(name).with_context(|| format!("looking up the user {name:?}"))?;
    let user = user.ok_or_else(|| anyhow!("there is no user {name:?}").context(Exit::Usage))?;
    if user.uid != geteuid() && !geteuid().is_root() {
        bail!("--user {name}: only root can become another user");
    }
    Ok(user)
}

/// Makes this process run as `user`, permanently. Keeps of root's capabilities only that to bind `port`, if other users
/// may not, because every connection binds a socket to it.
///
/// Call this before other threads exist: they would not keep that capability.
pub(super) fn become_user(user: &User, port: u16) -> Result<()> {
    if user.uid == geteuid() {
        return Ok(());
    }
    let binds = port < FIRST_OPEN_PORT;
    if binds {
        set_keep_capabilities(true).context("keeping the power to bind the port")?;
    }
    let name = CString::new(user.name.as_str()).context("a name with a zero byte")?;
    initgroups(&name, user.gid)
        .and_then(|()| setgid(user.gid))
        .and_then(|()| setuid(user.uid))
        .with_context(|| format!("becoming {}", user.name))?;
    let kept = match binds {
        true => CapabilitySet::NET_BIND_SERVICE,
        false => CapabilitySet::empty(),
    };
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).context("giving up root's powers")?;
    ensure!(
        user.uid.is_root() || setuid(Uid::from_raw(0)).is_err(),
        "still able to become root again"
    );
    Ok(())
}
