//! Parses one configuration file: TOML in which every line must be known.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Setting;
use super::schema::{Section, Value};

/// The sections by their names.
const SECTIONS: [&str; 3] = ["client", "host", "serve"];

/// Reads `text`, the content of `file`.
///
/// # Errors
/// The text is not TOML, or a line is not allowed; the error names the line and the nearest known word.
pub(super) fn parse(text: &str, file: &Path) -> Result<Vec<Setting>> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        anyhow!("line {}: {}", line(text, at), error.message())
    })?;
    let mut reading = Reading {
        text,
        file,
        settings: Vec::new(),
    };
    for (name, value) in table.get_ref() {
        let at = name.span().start;
        match name.get_ref().as_ref() {
            "client" => reading.section(Section::Client, value)?,
            "serve" => reading.section(Section::Serve, value)?,
            "host" => {
                for (host, value) in reading.table(value, "[host.NAME]")? {
                    let host = Section::Host(host.get_ref().to_string());
                    reading.section(host, value)?;
                }
            }
            other => {
                let known = nearest(other, SECTIONS.into_iter());
                bail!(
                    "line {}: there is no section {other:?}{known}",
                    line(text, at)
                );
            }
        }
    }
    Ok(reading.settings)
}

struct Reading<'t> {
    text: &'t str,
    file: &'t Path,
    settings: Vec<Setting>,
}

impl Reading<'_> {
    fn table<'v, 'i>(
        &self,
        value: &'v Spanned<DeValue<'i>>,
        what: &str,
    ) -> Result<&'v DeTable<'i>> {
        let line = line(self.text, value.span().start);
        let table = value.get_ref().as_table();
        table.ok_or_else(|| anyhow!("line {line}: this is a section: {what}"))
    }

    fn section(&mut self, section: Section, value: &Spanned<DeValue<'_>>) -> Result<()> {
        for (name, value) in self.table(value, &format!("[{section}]"))? {
            let line = line(self.text, name.span().start);
            let name = name.get_ref().as_ref();
            let Some(key) = section.keys().find(|it| it.name == name) else {
                let known = nearest(name, section.keys().map(|it| it.name));
                bail!("line {line}: [{section}] has no {name:?}{known}");
            };
            let value = match value.get_ref() {
                DeValue::String(text) => Some(Value::Text(text.to_string())),
                DeValue::Boolean(flag) => Some(Value::Flag(*flag)),
                DeValue::Integer(number) => {
                    let number = u64::from_str_radix(number.as_str(), number.radix());
                    number.ok().map(Value::Number)
                }
                _ => None,
            };
            let value = value.ok_or_else(|| "a text, a number, true or false is wanted".to_owned());
            let value = value.and_then(|value| key.check(&value).map(|()| value));
            let value = value.map_err(|why| anyhow!("line {line}: {name}: {why}"))?;
            self.settings.push(Setting {
                section: section.clone(),
                key: key.name,
                value,
                file: self.file.to_owned(),
                line,
            });
        }
        Ok(())
    }
}

/// The number of the line that contains byte `at`, from 1.
fn line(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    1 + before.filter(|&&byte| byte == b'\n').count()
}

/// A hint with the nearest known word, or with all of them if none is near.
fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> String {
    let mut known: Vec<_> = known
        .map(|it| (strsim::damerau_levenshtein(word, it), it))
        .collect();
    known.sort_by_key(|&(distance, _)| distance);
    match known[..] {
        [(distance, nearest), ..] if distance <= 1 + nearest.len() / 3 => {
            format!(": is {nearest:?} meant?")
        }
        _ => {
            let all: Vec<_> = known.iter().map(|(_, it)| *it).collect();
            format!(", but {}", all.join(", "))
        }
    }
}
