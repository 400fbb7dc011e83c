//! Parses the output of the runs for the sections, without trust in its shape.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::figure::{Section, Spread};

/// A finished run, as stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The name of the plan.
    pub name: String,
    /// What was run, as one would type it.
    pub command: String,
    /// How long it took, seconds.
    pub seconds: f64,
    /// What it printed.
    pub outcome: Outcome,
}

/// What became of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The JSON that it printed.
    Result(Value),
    /// Why there is none.
    Error(String),
}

/// All runs of a report, by name.
#[derive(Clone, Debug, Default)]
pub struct Results {
    runs: BTreeMap<String, Run>,
}

impl Results {
    /// Those of a plan.
    pub fn new(runs: impl IntoIterator<Item = Run>) -> Results {
        let runs = runs.into_iter().map(|it| (it.name.clone(), it));
        Results {
            runs: runs.collect(),
        }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Run> {
        self.runs.values()
    }

    /// What a run printed.
    ///
    /// # Errors
    /// Why there is no result.
    pub fn get(&self, name: &str) -> Result<&Value, String> {
        match self.runs.get(name).map(|it| &it.outcome) {
            Some(Outcome::Result(value)) => Ok(value),
            Some(Outcome::Error(error)) => Err(error.clone()),
            None => Err("was not run (--only)".into()),
        }
    }

    /// Like the above, for a section: notes the command, or the gap.
    pub fn for_section(&self, name: &str, section: &mut Section) -> Option<&Value> {
        if let Some(run) = self.runs.get(name) {
            section.commands.push(run.command.clone());
        }
        match self.get(name) {
            Ok(value) => Some(value),
            Err(why) => {
                section.gap(name, why);
                None
            }
        }
    }
}

/// A figure: `{min, median, max}`, a list of the runs' figures, or one number. Only finite ones.
pub fn spread(value: &Value) -> Option<Spread> {
    let spread = match value {
        Value::Object(fields) => Spread {
            min: fields.get("min")?.as_f64()?,
            median: fields.get("median")?.as_f64()?,
            max: fields.get("max")?.as_f64()?,
        },
        Value::Array(values) => of_runs(values.iter().filter_map(Value::as_f64).collect())?,
        other => Spread::single(other.as_f64()?),
    };
    Some(spread)
}

fn of_runs(mut values: Vec<f64>) -> Option<Spread> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    let median = match values.len() {
        0 => return None,
        odd if odd % 2 == 1 => values[half],
        _ => values[half - 1].midpoint(values[half]),
    };
    Some(Spread {
        min: values[0],
        median,
        max: *values.last()?,
    })
}

/// The objects of a list; empty if it is not a list.
pub fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// A text field of an object; empty if it does not exist.
pub fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// A size in bytes with its unit: `64 B`, `16 KiB`.
pub fn size(value: &Value) -> String {
    let bytes = value.as_u64().unwrap_or_default();
    match bytes {
        it if it >= 1 << 20 && it % (1 << 20) == 0 => format!("{} MiB", it >> 20),
        it if it >= 1 << 10 && it % (1 << 10) == 0 => format!("{} KiB", it >> 10),
        it => format!("{it} B"),
    }
}
