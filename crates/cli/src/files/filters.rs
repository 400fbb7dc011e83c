//! `--exclude`, `--include` and `--filter-from`, in the order in which they stand on the command line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, value_parser};
use zerolane_files::{Filter, FilterError};

/// The rules of a command line.
#[derive(Debug, Default)]
pub(crate) struct Filters(pub(crate) Filter);

const OPTIONS: [(&str, &str, &str); 3] = [
    (
        "exclude",
        "PATTERN",
        "Leave alone what PATTERN matches, at both ends. Of all rules, the first that matches decides",
    ),
    (
        "include",
        "PATTERN",
        "Do not leave alone what PATTERN matches, whatever a later rule says",
    ),
    (
        "filter-from",
        "FILE",
        "Rules from FILE, one a line: '- PATTERN' excludes, '+ PATTERN' includes",
    ),
];

impl clap::Args for Filters {
    fn augment_args(command: Command) -> Command {
        OPTIONS
            .iter()
            .fold(command, |command, &(name, value, help)| {
                let argument = Arg::new(name).long(name).value_name(value).help(help);
                let argument = argument.action(ArgAction::Append).num_args(1);
                command.arg(
                    argument
                        .value_parser(value_parser!(OsString))
                        .allow_hyphen_values(true),
                )
            })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Filters {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Filters, clap::Error> {
        let mut given = Vec::new();
        for (name, ..) in OPTIONS {
            let values = matches.get_many::<OsString>(name).unwrap_or_default();
            let places = matches.indices_of(name).unwrap_or_default();
            given.extend(
                places
                    .zip(values)
                    .map(|(place, value)| (place, name, value)),
            );
        }
        given.sort_unstable_by_key(|&(place, ..)| place);
        let mut filter = Filter::default();
        for (_, name, value) in given {
            add(&mut filter, name, value).map_err(|words| {
                let words = format!("--{name} {}: {words}\n", value.display());
                clap::Error::raw(ErrorKind::ValueValidation, words)
            })?;
        }
        Ok(Filters(filter))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn add(filter: &mut Filter, name: &str, value: &OsString) -> Result<(), String> {
    let words = |error: FilterError| error.to_string();
    match name {
        "exclude" => filter.exclude(value.as_bytes()).map_err(words),
        "include" => filter.include(value.as_bytes()).map_err(words),
        _ => {
            let text = std::fs::read(Path::new(value)).map_err(|error| error.to_string())?;
            filter.add_lines(&text).map_err(words)
        }
    }
}
