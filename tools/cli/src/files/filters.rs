//! Collects the filter rules of a command line, in their order there.

use std::ffi::OsString;
use std::io::{Read, stdin};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, value_parser};
use zerolane_files::{Filter, FilterError};

/// The filter rules of a command line.
#[derive(Debug, Default)]
pub(crate) struct Filters(pub(crate) Filter);

/// Name, value name and help of each option.
const OPTIONS: [(&str, &str, &str); 6] = [
    (
        "exclude",
        "PATTERN",
        "Leave files alone that match PATTERN. Of all rules, the first that matches decides",
    ),
    (
        "include",
        "PATTERN",
        "Include files that match PATTERN, whatever later rules say",
    ),
    (
        "exclude-from",
        "FILE",
        "Patterns to --exclude from FILE, one a line, or '+ PATTERN' to include; - is standard input",
    ),
    (
        "include-from",
        "FILE",
        "Patterns to --include from FILE, one a line, or '- PATTERN' to exclude",
    ),
    (
        "filter",
        "RULE",
        "A rule in rsync's syntax: '- PATTERN', '+ PATTERN', 'P PATTERN' (protect: copied to, but not deleted), 'R' (risk), \
         'H' (hide: not copied), 'S' (show), ': NAME' (from the file NAME of each directory)",
    ),
    (
        "filter-from",
        "FILE",
        "Rules for --filter from FILE, one a line",
    ),
];

/// The rules that `-F` stands for, the first time and the second.
const FILTER_FILES: [&str; 2] = [": .rsync-filter", "- .rsync-filter"];
const FILTER_FILES_OPTION: &str = "filter-files";

impl clap::Args for Filters {
    fn augment_args(command: Command) -> Command {
        let command = OPTIONS
            .iter()
            .fold(command, |command, &(name, value, help)| {
                let argument = Arg::new(name).long(name).value_name(value).help(help);
                let argument = argument.action(ArgAction::Append).num_args(1);
                command.arg(
                    argument
                        .value_parser(value_parser!(OsString))
                        .allow_hyphen_values(true),
                )
            });
        command.arg(
            Arg::new(FILTER_FILES_OPTION)
                .short('F')
                .action(ArgAction::Append)
                .num_args(0)
                .default_missing_value("")
                .value_parser(value_parser!(OsString))
                .help("As --filter ': .rsync-filter'; twice, also --filter '- .rsync-filter'"),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Filters {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Filters, clap::Error> {
        let mut given = Vec::new();
        let names = OPTIONS.iter().map(|&(name, ..)| name);
        for name in names.chain([FILTER_FILES_OPTION]) {
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
        let mut short = FILTER_FILES.iter();
        for (_, name, value) in given {
            let added = match name {
                FILTER_FILES_OPTION => short.next().map_or(Ok(()), |rule| {
                    let added = filter.add(rule.as_bytes());
                    added.map_err(|error| error.to_string())
                }),
                name => add(&mut filter, name, value),
            };
            added.map_err(|words| {
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
    let text = || read(value).map_err(|error| error.to_string());
    let added = match name {
        "exclude" => filter.exclude(value.as_bytes()),
        "include" => filter.include(value.as_bytes()),
        "exclude-from" => filter.exclude_lines(&text()?),
        "include-from" => filter.include_lines(&text()?),
        "filter" => filter.add(value.as_bytes()),
        _ => filter.add_lines(&text()?),
    };
    added.map_err(|error: FilterError| error.to_string())
}

fn read(file: &OsString) -> std::io::Result<Vec<u8>> {
    if file != "-" {
        return std::fs::read(Path::new(file));
    }
    let mut text = Vec::new();
    stdin().lock().read_to_end(&mut text)?;
    Ok(text)
}
