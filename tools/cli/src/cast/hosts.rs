//! Collects the hosts of a cast from arguments, a file, standard input, or the node list of a Slurm job.

use std::io::Read;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use zerolane_castnet::limits::CAST_PORT;

use crate::address;
use crate::exit::Exit;

/// The variable in which Slurm passes a job its nodes.
const SLURM: &str = "SLURM_JOB_NODELIST";

/// Most hosts in a list.
const MOST: usize = 100_000;

/// The names of the hosts, without duplicates: from the arguments, otherwise from the file, otherwise from the job.
pub(super) fn named(arguments: &[String], file: Option<&Path>) -> Result<Vec<String>> {
    let mut names = arguments.to_vec();
    if let Some(file) = file {
        let text = match file == Path::new("-") {
            true => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).map(|_| text)
            }
            false => std::fs::read_to_string(file),
        };
        let text = text.with_context(|| format!("--hosts {}", file.display()))?;
        let lines = text
            .lines()
            .map(|it| it.split('#').next().unwrap_or_default());
        names.extend(lines.flat_map(str::split_whitespace).map(str::to_owned));
    }
    if names.is_empty()
        && let Ok(list) = std::env::var(SLURM)
    {
        names =
            expand(&list).map_err(|why| anyhow!("{SLURM}={list}: {why}").context(Exit::Usage))?;
    }
    let usage = |words: &str| anyhow!(words.to_owned()).context(Exit::Usage);
    ensure!(
        !names.is_empty(),
        usage("no hosts: name them, or a file of them with --hosts")
    );
    ensure!(names.len() <= MOST, usage("more than 100000 hosts"));
    let mut met = std::collections::HashSet::new();
    names.retain(|it| met.insert(it.clone()));
    Ok(names)
}

/// Expands a list in Slurm's format: `a[1-3,07],b`.
fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    let mut rest = list.trim();
    while !rest.is_empty() {
        let end = end_of_first(rest)?;
        expand_one(&rest[..end], String::new(), &mut names)?;
        rest = rest[end..].strip_prefix(',').unwrap_or("");
    }
    Ok(names)
}

/// The end of the first entry: a comma outside brackets.
fn end_of_first(list: &str) -> Result<usize, String> {
    let mut inside = false;
    for (at, sign) in list.char_indices() {
        match sign {
            '[' if !inside => inside = true,
            ']' if inside => inside = false,
            '[' | ']' => return Err("brackets that do not match".into()),
            ',' if !inside => return Ok(at),
            _ => {}
        }
    }
    match inside {
        true => Err("brackets that do not match".into()),
        false => Ok(list.len()),
    }
}

/// Adds the names of one entry, whose beginning is already expanded in `before`.
fn expand_one(entry: &str, before: String, names: &mut Vec<String>) -> Result<(), String> {
    let Some((fixed, rest)) = entry.split_once('[') else {
        if names.len() >= MOST {
            return Err("more than 100000 hosts".into());
        }
        let name = before + entry;
        return match name.is_empty() {
            true => Err("an empty name".into()),
            false => {
                names.push(name);
                Ok(())
            }
        };
    };
    let (ranges, after) = rest.split_once(']').ok_or("brackets that do not match")?;
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            text.parse::<u32>()
                .map_err(|_| format!("{range:?} is no range of numbers"))
        };
        let (from, to) = (number(first)?, number(last)?);
        if to < from || (to - from) as usize >= MOST {
            return Err(format!("{range:?} is no range of numbers"));
        }
        let width = first.len();
        for number in from..=to {
            expand_one(after, format!("{before}{fixed}{number:0width$}"), names)?;
        }
    }
    Ok(())
}

/// The addresses of a host, at least one.
pub(super) fn resolve(name: &str) -> Result<Vec<SocketAddr>, String> {
    let (host, port) = address::parse_host(name, CAST_PORT)?;
    let found = (host.as_str(), port).to_socket_addrs();
    let found = found.map_err(|error| format!("its name is not known: {error}"))?;
    let found: Vec<_> = found.collect();
    match found.is_empty() {
        true => Err("its name has no address".into()),
        false => Ok(found),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn expand__lists_as_slurm_writes_them() {
        let names = |list: &str| expand(list).unwrap().join(" ");
        assert_eq!(names("a[1-3,7]"), "a1 a2 a3 a7");
        assert_eq!(
            names("n[08-11],login,gpu[1-2]-ib"),
            "n08 n09 n10 n11 login gpu1-ib gpu2-ib"
        );
        assert_eq!(names("r[1-2]n[1-2]"), "r1n1 r1n2 r2n1 r2n2");
        for wrong in [
            "a[1-3",
            "a]1[",
            "a[3-1]",
            "a[x]",
            "a,,b",
            "a[[1]]",
            "a[1-4000000000]",
            "a[1-99999]b[1-99999]",
        ] {
            assert!(expand(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn named__each_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "b # the second\n\nc:99 a\n").unwrap();
        let names = named(&["a".into()], Some(file.path())).unwrap();
        assert_eq!(names, ["a", "b", "c:99"]);
    }
}
