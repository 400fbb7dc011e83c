//! Runs the plan: each command in a process of its own, with its result stored before the next starts.
//!
//! | module | what it holds |
//! |---|---|
//! | `child` | one command, from start to end |
//! | `store` | what is kept in the report's directory, so that a report can be resumed |
//! | `shown` | progress |

mod child;
mod shown;
pub mod store;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

use crate::plan::Planned;
use crate::results::{Outcome, Run};
use shown::Shown;
use store::Store;

/// Does what of the plan is not done yet, and returns all of it. A run that fails is a result as well.
///
/// # Errors
/// Ctrl-C, or nothing can be stored.
pub fn run(
    plan: &[Planned],
    store: &Store,
    program: &Path,
    interrupt: &Interrupt,
) -> Result<Vec<Run>> {
    let mut done = Vec::new();
    let mut to_do = Vec::new();
    for planned in plan {
        match store.load(planned) {
            // What failed may have had a reason that is gone.
            Some(run) if matches!(run.outcome, Outcome::Result(_)) => done.push(run),
            _ => to_do.push(planned),
        }
    }
    let mut shown = Shown::new(&to_do, done.len());
    for (at, planned) in to_do.iter().enumerate() {
        shown.begin(at, planned);
        let started = Instant::now();
        let outcome = child::run(program, planned, interrupt, || shown.tick());
        if interrupt.requested() {
            shown.end();
            return Err(anyhow!(
                "stopped; finished runs are kept in {}: continue with the same command and --resume",
                store.directory().display()
            )
            .context(Exit::Interrupted));
        }
        let outcome = match outcome {
            Ok(value) => Outcome::Result(value),
            Err(why) => Outcome::Error(why),
        };
        let run = Run {
            name: planned.name.clone(),
            command: command(planned),
            seconds: started.elapsed().as_secs_f64(),
            outcome,
        };
        shown.finish(&run);
        store
            .save(planned, &run)
            .with_context(|| format!("cannot keep the result of {}", planned.name))?;
        done.push(run);
    }
    shown.end();
    Ok(done)
}

/// The command as one would type it. A capture is named by its file alone, which lies in the report's directory.
fn command(planned: &Planned) -> String {
    let words = planned.words.iter().map(|word| {
        let path = Path::new(word);
        let name = path.file_name().and_then(|it| it.to_str());
        match name {
            Some(name) if path.is_absolute() => format!("captures/{name}"),
            _ => word.clone(),
        }
    });
    let words: Vec<_> = ["zerolane".to_owned()].into_iter().chain(words).collect();
    words.join(" ")
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn command__names_no_directory_of_this_machine() {
        let planned = Planned {
            name: "trace".into(),
            words: vec!["trace".into(), "/home/somebody/x.pcap".into()],
            expected_s: 1,
        };
        assert_eq!(command(&planned), "zerolane trace captures/x.pcap");
    }
}
