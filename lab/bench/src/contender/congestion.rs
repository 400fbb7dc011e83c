//! Sets TCP's congestion control on a socket, and explains why if it cannot.
//!
//! The kernel lets root choose any available algorithm. Other users may choose those in
//! `net.ipv4.tcp_allowed_congestion_control`: the machine's default and those that root added.

use std::io::ErrorKind;

use anyhow::{Context, Result};
use socket2::{Domain, Socket, Type};

/// What TCP is compared with unless another one is asked for: the fastest of them in memory and over a
/// good link, see [`super::tcp`].
const BASELINE: &str = "cubic";

/// Gives `socket` the congestion control `name`.
///
/// # Errors
/// This kernel does not have it, or this user may not choose it; in words that say what to do.
pub(crate) fn set(socket: &Socket, name: &str) -> Result<()> {
    let Err(error) = socket.set_tcp_congestion(name.as_bytes()) else {
        return Ok(());
    };
    let why = explain(error.kind(), name, allowed().as_deref());
    Err(error).context(why)
}

/// Whether this kernel and this user have it; if not, why.
pub(crate) fn able(name: &str) -> Result<(), String> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None);
    let set = socket.map_err(Into::into).and_then(|it| set(&it, name));
    set.map_err(|error| format!("{error:#}"))
}

/// Gives `socket` the one asked for. If none is, [`BASELINE`] where this user may choose it, and else the
/// system's default, which a socket has from the start.
///
/// # Errors
/// As [`set`], of the one asked for.
pub(crate) fn choose(socket: &Socket, asked: Option<&str>) -> Result<()> {
    if let Some(name) = asked {
        return set(socket, name);
    }
    match socket.set_tcp_congestion(BASELINE.as_bytes()) {
        Err(error) if !is_withheld(error.kind()) => Err(error.into()),
        _ => Ok(()),
    }
}

/// The default congestion control of TCP contenders.
pub(crate) fn baseline() -> Result<String> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    choose(&socket, None)?;
    let name = socket.tcp_congestion()?;
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Whether the kernel does not have it, or not for this user.
fn is_withheld(error: ErrorKind) -> bool {
    matches!(error, ErrorKind::NotFound | ErrorKind::PermissionDenied)
}

/// What root allowed to all, if the kernel tells.
fn allowed() -> Option<String> {
    let list = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").ok()?;
    Some(list.trim().to_owned())
}

/// Why `name` was refused and what to do, in words.
fn explain(error: ErrorKind, name: &str, allowed: Option<&str>) -> String {
    match (error, allowed) {
        (ErrorKind::NotFound, _) => format!(
            "this kernel does not have TCP congestion control {name:?}: `sysctl \
             net.ipv4.tcp_available_congestion_control` lists those it has; to load a module, as root: modprobe \
             tcp_{name}"
        ),
        (ErrorKind::PermissionDenied, Some(allowed)) => format!(
            "this user may not choose TCP congestion control {name:?}, only one of: {allowed}; to allow it for all \
             users, as root: sysctl -w net.ipv4.tcp_allowed_congestion_control=\"{allowed} {name}\""
        ),
        (ErrorKind::PermissionDenied, None) => format!(
            "this user may not choose TCP congestion control {name:?}: `sysctl \
             net.ipv4.tcp_allowed_congestion_control` lists those allowed"
        ),
        _ => format!("TCP congestion control {name:?} cannot be chosen"),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn explain__tells_what_is_missing_from_what_is_not_allowed() {
        let explain = |error| explain(error, "cubic", Some("reno bbr"));
        let missing = explain(ErrorKind::NotFound);
        assert!(missing.contains("does not have"), "{missing}");
        assert!(missing.contains("modprobe tcp_cubic"), "{missing}");
        let refused = explain(ErrorKind::PermissionDenied);
        assert!(refused.contains("may not choose"), "{refused}");
        let command = "sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno bbr cubic\"";
        assert!(refused.contains(command), "{refused}");
    }

    #[test]
    fn set__one_that_no_kernel_has_is_missing() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let error = set(&socket, "no-such-one").unwrap_err();
        let said = format!("{error:#}");
        assert!(said.contains("does not have"), "{said}");
        assert!(choose(&socket, Some("no-such-one")).is_err());
        assert_eq!(able("no-such-one"), Err(said));
        assert_eq!(able(&baseline().unwrap()), Ok(()));
    }

    #[test]
    fn baseline__is_what_a_socket_has_for_whoever_asks() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        choose(&socket, None).unwrap();
        let name = socket.tcp_congestion().unwrap();
        let name = String::from_utf8_lossy(&name);
        assert_eq!(baseline().unwrap(), name.trim_end_matches('\0'));
        // It can be asked for by its name as well.
        set(&socket, &baseline().unwrap()).unwrap();
    }
}
