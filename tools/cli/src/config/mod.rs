//! Reads the configuration files: defaults for commands that connect, also for single hosts, and for `serve`.

mod file;
mod schema;
pub(crate) mod shown;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use zerolane::keys;

use crate::exit::Exit;
use crate::rate;
pub(crate) use schema::Section;
use schema::Value;

/// The variable that names one file to use instead of all others.
const VARIABLE: &str = "ZEROLANE_CONFIG";
/// The user's file, in the directory of the keys.
const OF_USER: &str = "config.toml";
const OF_SYSTEM: &str = "/etc/zerolane/config.toml";

/// The settings of all files.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// The files that were looked for, highest precedence first, and whether they exist.
    files: Vec<(PathBuf, bool)>,
    /// Highest precedence first.
    settings: Vec<Setting>,
}

/// One setting, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    section: Section,
    key: &'static str,
    value: Value,
    /// The file that contains it.
    file: PathBuf,
    line: usize,
}

impl Config {
    /// Reads the files that exist.
    ///
    /// # Errors
    /// A file cannot be read, or contains an error; the message names the file and line.
    pub(crate) fn load() -> Result<Config> {
        let named = std::env::var_os(VARIABLE).filter(|it| !it.is_empty());
        let paths = match &named {
            Some(file) => vec![PathBuf::from(file)],
            None => {
                let of_user = keys::home().map(|home| home.join(OF_USER));
                of_user.into_iter().chain([OF_SYSTEM.into()]).collect()
            }
        };
        let mut config = Config::default();
        for path in paths {
            let read = config.add(&path, named.is_some());
            read.with_context(|| format!("the configuration in {}", path.display()))
                .context(Exit::Usage)?;
        }
        Ok(config)
    }

    /// Adds the settings of `path`, which have lower precedence than those before.
    fn add(&mut self, path: &Path, must_be_there: bool) -> Result<()> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !must_be_there => {
                self.files.push((path.to_owned(), false));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        self.settings.extend(file::parse(&text, path)?);
        self.files.push((path.to_owned(), true));
        Ok(())
    }

    /// The setting for `key`: of the first file that has it in any of the sections, the first of the sections.
    fn find(&self, sections: &[Section], key: &str) -> Option<&Setting> {
        let in_file = |file: &Path, section: &Section| {
            let mut all = self.settings.iter();
            all.find(|it| it.file == file && it.section == *section && it.key == key)
        };
        let mut files = self.files.iter();
        files.find_map(|(file, _)| sections.iter().find_map(|section| in_file(file, section)))
    }

    /// A text setting.
    pub(crate) fn text(&self, sections: &[Section], key: &str) -> Option<&str> {
        match &self.find(sections, key)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A text setting of another type, which was checked when the file was read.
    pub(crate) fn parsed<T: std::str::FromStr>(
        &self,
        sections: &[Section],
        key: &str,
    ) -> Option<T> {
        self.text(sections, key)?.parse().ok()
    }

    /// A choice setting, which was checked when the file was read.
    pub(crate) fn chosen<T: clap::ValueEnum>(&self, sections: &[Section], key: &str) -> Option<T> {
        T::from_str(self.text(sections, key)?, false).ok()
    }

    /// A number setting.
    pub(crate) fn number(&self, sections: &[Section], key: &str) -> Option<u64> {
        match self.find(sections, key)?.value {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    /// A rate setting, bytes a second.
    pub(crate) fn rate(&self, sections: &[Section], key: &str) -> Option<u64> {
        rate::parse(self.text(sections, key)?).ok()
    }

    /// A setting that is true or false.
    pub(crate) fn flag(&self, sections: &[Section], key: &str) -> Option<bool> {
        match self.find(sections, key)?.value {
            Value::Flag(flag) => Some(flag),
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
