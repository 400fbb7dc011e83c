//! Parses `--racks`, which says which hosts share a rack.

use std::path::PathBuf;

use anyhow::{Context, Result};
use zerolane_castnet::Racks;

use super::with_exit_code;
use crate::exit::Exit;

/// Bits of an IPv6 subnet if the user gives only those of IPv4: IPv6 subnets have 64.
const IPV6_BITS: u8 = 64;

/// The argument of `--racks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RackArg {
    /// Hosts of one subnet are one rack: prefix lengths for IPv4 and for IPv6.
    Subnets(u8, u8),
    /// A file with a rack for each host.
    File(PathBuf),
}

/// Parses prefix lengths, or the path of a file. A file whose name is a number is written `./24`.
pub(super) fn parse(text: &str) -> Result<RackArg, String> {
    let (ipv4, ipv6) = match text.split_once(',') {
        Some((ipv4, ipv6)) => (ipv4, Some(ipv6)),
        None => (text, None),
    };
    let is_number = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
    if !is_number(ipv4) || !ipv6.is_none_or(is_number) {
        return Ok(RackArg::File(text.into()));
    }
    // Racks reports lengths out of range.
    let bits = |it: &str| it.parse().unwrap_or(u8::MAX);
    let (ipv4, ipv6) = (bits(ipv4), ipv6.map_or(IPV6_BITS, bits));
    match Racks::subnets(ipv4, ipv6) {
        Ok(_) => Ok(RackArg::Subnets(ipv4, ipv6)),
        Err(why) => Err(why.to_string()),
    }
}

/// The racks. Every host in `names` must have one.
pub(super) fn racks(arg: Option<&RackArg>, names: &[String]) -> Result<Racks> {
    let racks = match arg {
        None => Ok(Racks::default()),
        Some(RackArg::Subnets(ipv4, ipv6)) => Racks::subnets(*ipv4, *ipv6),
        Some(RackArg::File(path)) => {
            let text = std::fs::read_to_string(path);
            let text = text.with_context(|| format!("--racks {}", path.display()));
            Racks::listed(&text.context(Exit::Usage)?)
        }
    };
    let racks = racks.map_err(with_exit_code)?;
    racks
        .check(names.iter().map(|it| &**it))
        .map_err(with_exit_code)?;
    Ok(racks)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parse__bits_of_subnets_or_a_file() {
        assert_eq!(parse("24"), Ok(RackArg::Subnets(24, 64)));
        assert_eq!(parse("22,56"), Ok(RackArg::Subnets(22, 56)));
        for file in ["racks", "./24", "22,", "-3"] {
            assert_eq!(parse(file), Ok(RackArg::File(file.into())));
        }
        for wrong in ["33", "24,129", "4000000000"] {
            assert!(
                parse(wrong).unwrap_err().contains("at most 32 bits"),
                "{wrong}"
            );
        }
    }
}
