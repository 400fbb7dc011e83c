//! Parses what to forward: where to listen, and where that leads, on the command line and in files.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use zerolane_streams::forward::{Forward, Listen, Target};
use zerolane_streams::limits::PRIORITIES;

use crate::exit::Exit;

/// The address of a port without one, as in `ssh -L`.
const LOOPBACK: &str = "127.0.0.1";
/// The target of a SOCKS5 proxy.
const SOCKS: &str = "socks";
/// Most bytes of a file of forwards.
const FILE_BYTES: u64 = 1 << 20;

/// One forward, from its two words.
///
/// # Errors
/// A word has another form.
pub(super) fn forward(
    listen: &str,
    target: &str,
    reverse: bool,
    priority: Option<u8>,
) -> Result<Forward> {
    let usage = |words: String| anyhow!(words).context(Exit::Usage);
    match (listening(listen).map_err(usage)?, target, reverse) {
        (Listen::Tcp(listen), SOCKS, true) => Err(usage(format!(
            "{SOCKS} is for this end: the other one accepts at {listen} for one target, HOST:PORT"
        ))),
        (listen, SOCKS, false) => Ok(Forward::There {
            listen,
            target: None,
            priority,
        }),
        (Listen::Unix(path), _, true) => Err(usage(format!(
            "{}: the other end listens on TCP alone",
            path.display()
        ))),
        (Listen::Tcp(listen), target, true) => {
            let target = host_and_port(target).map_err(usage)?;
            Ok(Forward::Back {
                listen,
                target,
                priority,
            })
        }
        (listen, target, false) => Ok(Forward::There {
            listen,
            target: Some(host_and_port(target).map_err(usage)?),
            priority,
        }),
    }
}

/// `PORT`, `ADDR:PORT`, or a path with a slash.
fn listening(text: &str) -> Result<Listen, String> {
    match text.contains('/') {
        true => Ok(Listen::Unix(PathBuf::from(text))),
        false => {
            let with_address = match text.bytes().all(|it| it.is_ascii_digit()) {
                true => format!("{LOOPBACK}:{text}"),
                false => text.to_owned(),
            };
            let parsed = split(&with_address, true);
            let words =
                || format!("{text:?} is neither PORT, ADDR:PORT nor the path of a UNIX socket");
            parsed.map(Listen::Tcp).ok_or_else(words)
        }
    }
}

fn host_and_port(text: &str) -> Result<Target, String> {
    let words = || format!("{text:?} is no target: HOST:PORT, or {SOCKS}");
    split(text, false).ok_or_else(words)
}

/// `HOST:PORT`, with an IPv6 address in brackets.
fn split(text: &str, may_be_any: bool) -> Option<Target> {
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = Some(port)
        .filter(|it| it.bytes().all(|it| it.is_ascii_digit()))?
        .parse()
        .ok()?;
    let host = match host.strip_prefix('[') {
        Some(inside) => inside
            .strip_suffix(']')
            .filter(|it| it.parse::<std::net::Ipv6Addr>().is_ok())?,
        None if host.contains(':') => return None,
        None => host,
    };
    Target::new(host, port).filter(|it| may_be_any || it.port != 0)
}

/// Parses a priority.
pub(super) fn parse_priority(text: &str) -> Result<u8, String> {
    let parsed = text.parse().ok().filter(|&it| usize::from(it) < PRIORITIES);
    parsed.ok_or_else(|| {
        format!(
            "{text:?} is no priority: 0, which goes first, to {}",
            PRIORITIES - 1
        )
    })
}

/// The forwards of a file: a line `[reverse] LISTEN TARGET [priority=N]` for each; `#` begins a comment.
///
/// # Errors
/// The file cannot be read, or a line has another form.
pub(super) fn of_file(path: &Path) -> Result<Vec<Forward>> {
    let name = path.display();
    let meta = std::fs::metadata(path).with_context(|| format!("cannot read {name}"))?;
    ensure!(meta.len() <= FILE_BYTES, "{name} is longer than 1 MiB");
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    of_lines(&text).with_context(|| name.to_string())
}

fn of_lines(text: &str) -> Result<Vec<Forward>> {
    let mut forwards = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let content = line.split('#').next().unwrap_or_default();
        let mut words: Vec<&str> = content.split_whitespace().collect();
        let priority = words.last().and_then(|it| it.strip_prefix("priority="));
        let priority = priority.map(parse_priority);
        words.truncate(words.len() - usize::from(priority.is_some()));
        let parsed = match (priority.transpose(), &words[..]) {
            (Ok(None), []) => continue,
            (Ok(priority), ["reverse", listen, target]) => forward(listen, target, true, priority),
            (Ok(priority), [listen, target]) => forward(listen, target, false, priority),
            (Err(why), _) => Err(anyhow!(why).context(Exit::Usage)),
            _ => {
                let words = "expected [reverse] LISTEN TARGET [priority=N]";
                Err(anyhow!(words).context(Exit::Usage))
            }
        };
        forwards.push(parsed.with_context(|| format!("line {number}"))?);
    }
    match forwards.is_empty() {
        true => bail!("no forwards: a line for each, LISTEN TARGET"),
        false => Ok(forwards),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn target(host: &str, port: u16) -> Target {
        Target::new(host, port).unwrap()
    }

    #[test]
    fn forward__of_ports_addresses_paths_and_socks() {
        let there = |listen, target| Forward::There {
            listen,
            target,
            priority: Some(1),
        };
        let tcp = |host, port| Listen::Tcp(target(host, port));
        for (listen, to, expected) in [
            (
                "8080",
                "db:5432",
                there(tcp("127.0.0.1", 8080), Some(target("db", 5432))),
            ),
            (
                "0",
                "[::1]:22",
                there(tcp("127.0.0.1", 0), Some(target("::1", 22))),
            ),
            (
                "[::]:80",
                "192.0.2.1:1",
                there(tcp("::", 80), Some(target("192.0.2.1", 1))),
            ),
            ("localhost:80", "socks", there(tcp("localhost", 80), None)),
            (
                "./a.sock",
                "db:1",
                there(Listen::Unix("./a.sock".into()), Some(target("db", 1))),
            ),
        ] {
            assert_eq!(
                forward(listen, to, false, Some(1)).unwrap(),
                expected,
                "{listen} {to}"
            );
        }
        let back = Forward::Back {
            listen: target("127.0.0.1", 2222),
            target: target("localhost", 22),
            priority: None,
        };
        assert_eq!(forward("2222", "localhost:22", true, None).unwrap(), back);
    }

    #[test]
    fn forward__of_another_form_is_refused_with_the_right_form() {
        for (listen, to, reverse) in [
            ("", "db:1", false),
            ("x", "db:1", false),
            ("65536", "db:1", false),
            ("a:b:1", "db:1", false),
            ("[::1]", "db:1", false),
            ("80", "db", false),
            ("80", "db:0", false),
            ("80", ":1", false),
            ("80", "db:http", false),
            ("80", "::1:80", false),
            ("80", "/a.sock", false),
            ("/a.sock", "db:1", true),
            ("80", "socks", true),
        ] {
            let refused = forward(listen, to, reverse, None).unwrap_err();
            assert_eq!(Exit::of(&refused), Exit::Usage, "{listen} {to}");
        }
    }

    #[test]
    fn of_lines__several_with_comments() {
        let lines =
            "# all\n8080 db:80\n\nreverse 9000 localhost:22 priority=0 # back\n /run/x socks\n";
        let all = of_lines(lines).unwrap();
        assert_eq!(all.len(), 3);
        assert!(matches!(
            all[1],
            Forward::Back {
                priority: Some(0),
                ..
            }
        ));
        for broken in [
            "",
            "# nothing\n",
            "80\n",
            "80 a:1 b:1\n",
            "80 a:1 b\n",
            "80 a:1 priority=8\n",
            "80 a:1 priority=\n",
            "priority=1\n",
            "backward 80 a:1\n",
        ] {
            assert!(of_lines(broken).is_err(), "{broken:?}");
        }
        let broken = of_lines("8080 db:80\n8081\n").unwrap_err();
        assert!(format!("{broken:#}").contains("line 2"), "{broken:#}");
    }
}
