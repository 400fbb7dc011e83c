//! Explains why there are no samples.

use std::fs;
use std::io;
use std::str::FromStr;

use nix::errno::Errno;
use thiserror::Error;

/// Above it only CAP_PERFMON may sample whole CPUs.
const PARANOID_LIMIT: i32 = 0;

/// The kernel takes no samples for this process.
#[derive(Debug, Error)]
pub(crate) enum Refused {
    /// The right is missing.
    #[error(
        "this process may not sample: kernel.perf_event_paranoid is {paranoid} and CAP_PERFMON is missing; run as \
         root, or allow it for all users: `sysctl -w kernel.perf_event_paranoid=0`"
    )]
    Paranoid {
        /// What the setting is.
        paranoid: i32,
    },
    /// The right is there, or nothing but the right is in the way, and still.
    #[error(
        "this process may not sample, and not because of kernel.perf_event_paranoid ({paranoid}): the system-call \
         filter of a container or service forbids perf_event_open"
    )]
    Filtered {
        /// What the setting is.
        paranoid: i32,
    },
    /// A higher rate than the kernel allows to any user.
    #[error(
        "this machine takes at most {limit_hz} samples a second (kernel.perf_event_max_sample_rate)"
    )]
    TooOften {
        /// What the setting is.
        limit_hz: u64,
    },
    /// A kernel without.
    #[error("this kernel takes no samples: it was built without perf events")]
    Missing,
    /// Anything else.
    #[error("sampling failed")]
    Failed(#[source] io::Error),
}

impl Refused {
    pub(crate) fn of(error: io::Error) -> Refused {
        let errno = error.raw_os_error().map(Errno::from_raw);
        match errno {
            Some(Errno::EACCES | Errno::EPERM) => Refused::by_rights(paranoid()),
            Some(Errno::ENOSYS | Errno::ENOENT | Errno::EOPNOTSUPP) => Refused::Missing,
            _ => Refused::Failed(error),
        }
    }

    /// With what the system said.
    pub(crate) fn in_full(&self) -> String {
        match self {
            Refused::Failed(why) => format!("{self}: {why}"),
            _ => self.to_string(),
        }
    }

    fn by_rights(paranoid: Option<i32>) -> Refused {
        match paranoid {
            None => Refused::Missing,
            Some(paranoid) if paranoid <= PARANOID_LIMIT || has_perfmon() => {
                Refused::Filtered { paranoid }
            }
            Some(paranoid) => Refused::Paranoid { paranoid },
        }
    }
}

/// Whether the rate exceeds the kernel's limit for all users. The kernel lowers the limit by itself if samples take
/// long.
pub(crate) fn check_frequency(frequency_hz: u64) -> Result<(), Refused> {
    match setting("perf_event_max_sample_rate") {
        Some(limit_hz) if limit_hz < frequency_hz => Err(Refused::TooOften { limit_hz }),
        _ => Ok(()),
    }
}

fn paranoid() -> Option<i32> {
    setting("perf_event_paranoid")
}

fn setting<T: FromStr>(name: &str) -> Option<T> {
    let setting = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
    setting.trim().parse().ok()
}

/// Whether this process has CAP_PERFMON or CAP_SYS_ADMIN.
fn has_perfmon() -> bool {
    const PERFMON: u64 = 1 << 38;
    const SYS_ADMIN: u64 = 1 << 21;
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|it| u64::from_str_radix(it.trim(), 16).ok());
    effective.is_some_and(|it| it & (PERFMON | SYS_ADMIN) != 0)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn check_frequency__names_the_limit() {
        assert!(check_frequency(1).is_ok());
        if let Some(limit_hz) = setting::<u64>("perf_event_max_sample_rate") {
            let refused = check_frequency(u64::MAX).unwrap_err().to_string();
            assert!(refused.contains(&limit_hz.to_string()), "{refused}");
        }
    }

    #[test]
    fn by_rights__names_what_is_missing() {
        let words = |paranoid| Refused::by_rights(paranoid).to_string();
        assert!(words(None).contains("built without"));
        assert!(words(Some(-1)).contains("filter"));
        let words = words(Some(3));
        let right = if has_perfmon() {
            "filter"
        } else {
            "CAP_PERFMON"
        };
        assert!(words.contains(right), "{words}");
    }
}
