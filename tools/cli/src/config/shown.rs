//! Implements `zerolane config`: prints the settings in effect, and where each is set.

use anyhow::Result;

use super::{Config, Section, Setting};
use crate::console;

/// Arguments of `zerolane config`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Show the settings for this host, as the command line names it [default: the sections for all hosts and for
    /// serve]
    #[arg(value_name = "HOST")]
    host: Option<String>,
}

/// Prints the settings, as lines that a configuration file may contain.
pub(crate) fn run(args: Args) -> Result<()> {
    let config = Config::load()?;
    for (file, is_there) in &config.files {
        let there = if *is_there { "" } else { " (not there)" };
        console::say(format_args!("# {}{there}", file.display()))?;
    }
    match args.host {
        Some(host) => config.say(Section::Host(host), &[Section::Client]),
        None => {
            config.say(Section::Client, &[])?;
            config.say_hosts()?;
            config.say(Section::Serve, &[])
        }
    }
}

impl Config {
    /// Prints all keys of a section: set there, in one of `others`, or by default.
    fn say(&self, section: Section, others: &[Section]) -> Result<()> {
        console::say(format_args!("\n[{section}]"))?;
        let keys = section.keys();
        let sections = [&[section], others].concat();
        for key in keys {
            match (self.find(&sections, key.name), key.default) {
                (Some(setting), _) => console::say(setting.line())?,
                (None, Some(default)) => {
                    console::say(format_args!("{} = {}  # default", key.name, default()))?;
                }
                (None, None) => console::say(format_args!("# {} is not set", key.name))?,
            }
        }
        Ok(())
    }

    /// Prints the settings of single hosts.
    fn say_hosts(&self) -> Result<()> {
        let mut said = Vec::new();
        for setting in &self.settings {
            let section = &setting.section;
            if matches!(section, Section::Host(_)) && !said.contains(section) {
                said.push(section.clone());
                console::say(format_args!("\n[{section}]"))?;
                let one = std::slice::from_ref(section);
                for found in section.keys().filter_map(|key| self.find(one, key.name)) {
                    console::say(found.line())?;
                }
            }
        }
        Ok(())
    }
}

impl Setting {
    fn line(&self) -> String {
        let Setting {
            key,
            value,
            file,
            line,
            ..
        } = self;
        format!("{key} = {value}  # {}:{line}", file.display())
    }
}
