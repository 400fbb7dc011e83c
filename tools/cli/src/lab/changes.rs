//! Parses `--change`, and changes the network while the programs run.

use std::str::FromStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use clap::Parser;
use netlab::lab::Lab;
use netsim::link::LinkConfig;

use super::link::LinkArgs;
use crate::units;

/// Longest time after which something changes: a day.
const LATEST: Duration = Duration::from_secs(24 * 3600);

/// A change of links, and its time after the start of the programs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    after: Duration,
    /// The interface, from 1; `None` means all.
    interface: Option<usize>,
    to: State,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Link(LinkConfig),
    Up(bool),
}

/// The options of a link.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Options {
    #[command(flatten)]
    link: LinkArgs,
}

impl Change {
    /// The interface whose links change, unless all do.
    pub(super) fn interface(&self) -> Option<usize> {
        self.interface
    }
}

/// Parses the number of an interface.
fn interface(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|&it| it > 0);
    number.ok_or_else(|| format!("{text:?} is no interface: 1 is the first"))
}

impl FromStr for Change {
    type Err = String;

    /// Parses `5s down`, `8s up`, or `5s` and the options of a link, which replace all earlier ones. `interface 2`
    /// after the time limits the change to the links of the second interfaces.
    fn from_str(text: &str) -> Result<Change, String> {
        let mut words = text.split_whitespace();
        let after = words.next().ok_or("empty: a time, then what changes")?;
        let after = units::duration_up_to(after, LATEST)?;
        let words: Vec<&str> = words.collect();
        let (interface, words) = match words[..] {
            ["interface"] => return Err("interface of which number? 1 is the first".into()),
            ["interface", number, ref rest @ ..] => (Some(interface(number)?), rest),
            ref all => (None, all),
        };
        let to = match *words {
            [] => return Err("a time, but nothing that changes: down, up, or options".into()),
            ["down"] => State::Up(false),
            ["up"] => State::Up(true),
            _ => {
                let options = Options::try_parse_from(words).map_err(|error| {
                    // The first line states the error; the rest is help for a whole command.
                    let text = error.to_string();
                    let line = text.lines().next().unwrap_or_default();
                    line.trim_start_matches("error: ").to_owned()
                })?;
                State::Link(
                    options
                        .link
                        .config()
                        .map_err(|it| it.root_cause().to_string())?,
                )
            }
        };
        Ok(Change {
            after,
            interface,
            to,
        })
    }
}

/// Makes the changes in `lab`, each at its time, until all are made or `ended` is closed.
pub(super) fn make(mut changes: Vec<Change>, lab: &Lab, ended: &Receiver<()>) {
    let started = Instant::now();
    changes.sort_by_key(|change| change.after);
    for change in changes {
        let left = change.after.saturating_sub(started.elapsed());
        if ended.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let hosts = lab.hosts().len();
        for towards in 0..lab.stats().towards.len() {
            if change.interface.is_some_and(|it| it != towards / hosts + 1) {
                continue;
            }
            match change.to {
                State::Link(config) => lab.set_link(towards, config),
                State::Up(up) => lab.set_up(towards, up),
            }
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use netsim::link::Loss;

    #[test]
    fn Change__a_time_and_what_then() {
        let down = Change {
            after: Duration::from_secs(5),
            interface: None,
            to: State::Up(false),
        };
        assert_eq!("5s down".parse(), Ok(down.clone()));
        let of_one = Change {
            interface: Some(2),
            ..down
        };
        assert_eq!("5s interface 2 down".parse(), Ok(of_one));
        let worse: Change = " 90s  --loss 1% --rtt 10ms".parse().unwrap();
        let config = LinkConfig {
            loss: Loss::Random(0.01),
            delay: Duration::from_millis(5),
            ..LinkConfig::default()
        };
        assert_eq!(worse.after, Duration::from_secs(90));
        assert_eq!(worse.to, State::Link(config));
    }

    #[test]
    fn Change__wrong_ones_say_why() {
        for (wrong, words) in [
            ("", "empty"),
            ("5s", "nothing that changes"),
            ("down", "a time such as"),
            ("25h down", "a time such as"),
            ("90000s down", "at most 86400 s"),
            ("5s sideways", "unexpected argument 'sideways'"),
            ("5s interface", "of which number"),
            ("5s interface 0 down", "is no interface"),
            ("5s interface 1", "nothing that changes"),
            ("5s --queue 3", "--queue needs --rate"),
            ("5s --loss 101%", "at most 100%"),
        ] {
            let error = wrong.parse::<Change>().unwrap_err();
            assert!(error.contains(words), "{wrong}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
