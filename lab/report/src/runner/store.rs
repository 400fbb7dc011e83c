//! Stores results in the report's directory: `runs/NAME.json` for each run, and the settings of all runs.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::plan::{Extent, Planned};
use crate::results::Run;

/// What all runs of a report have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Where they ran.
    pub machine: Machine,
    /// By which version.
    pub version: String,
    /// By which build of it.
    pub program: String,
    /// How much they measured.
    pub extent: Extent,
}

/// The directory of a report.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
}

/// What a file of a run holds: the words as well, so that a run of another plan is not taken.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    words: Vec<String>,
    run: Run,
}

impl Store {
    /// Opens a directory, which is made if it is not there; runs in it are used with `resume` only.
    ///
    /// # Errors
    /// There are runs already and `resume` was not said; or they are of another machine, version or plan; or it cannot be
    /// written to.
    pub fn open(directory: &Path, stamp: &Stamp, resume: bool) -> Result<Store> {
        let store = Store {
            directory: directory.into(),
        };
        let path = store.runs().join(STAMP);
        let shown = directory.display();
        match fs::read(&path) {
            Ok(_) if !resume => bail!(
                "{shown} already holds a report: --resume continues it, --out names another directory"
            ),
            Ok(bytes) => {
                let there: Option<Stamp> = serde_json::from_slice(&bytes).ok();
                let Some(there) = there else {
                    bail!(
                        "{} is not readable: remove {shown}, or name another --out",
                        path.display()
                    );
                };
                if let Some(what) = difference(&there, stamp) {
                    bail!("cannot resume {shown}: {what}. Start anew with another --out");
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if resume {
                    bail!(
                        "nothing to resume in {shown}: leave out --resume, or name the directory with --out"
                    );
                }
                fs::create_dir_all(store.runs()).with_context(|| format!("cannot make {shown}"))?;
                let text = serde_json::to_vec_pretty(stamp)?;
                write_whole(&path, &text)?;
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        }
        Ok(store)
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where `trace` finds its captures.
    pub fn captures(&self) -> PathBuf {
        self.directory.join("captures")
    }

    fn runs(&self) -> PathBuf {
        self.directory.join("runs")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.runs().join(format!("{name}.json"))
    }

    /// The run of that plan, if it is there and whole.
    pub fn load(&self, planned: &Planned) -> Option<Run> {
        let bytes = fs::read(self.path(&planned.name)).ok()?;
        let kept: Kept = serde_json::from_slice(&bytes).ok()?;
        (kept.words == words(planned) && kept.run.name == planned.name).then_some(kept.run)
    }

    /// Keeps a run.
    ///
    /// # Errors
    /// It cannot be written; nothing of it is there then.
    pub fn save(&self, planned: &Planned, run: &Run) -> Result<()> {
        let kept = Kept {
            words: words(planned),
            run: run.clone(),
        };
        write_whole(&self.path(&run.name), &serde_json::to_vec_pretty(&kept)?)
    }

    /// Writes a file of the report.
    ///
    /// # Errors
    /// It cannot be written; what was there before is untouched then.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        write_whole(&self.directory.join(name), content)
    }
}

const STAMP: &str = "report.stamp";

/// The words but for where captures lie: a directory may be moved.
fn words(planned: &Planned) -> Vec<String> {
    let name = |word: &String| match Path::new(word) {
        path if path.is_absolute() => path
            .file_name()
            .map_or_else(String::new, |it| it.to_string_lossy().into_owned()),
        _ => word.clone(),
    };
    planned.words.iter().map(name).collect()
}

fn difference(there: &Stamp, here: &Stamp) -> Option<String> {
    if there.machine != here.machine {
        let say = |it: &Machine| {
            let rights = if it.root { "root" } else { "an ordinary user" };
            format!(
                "{}, {} cores, {}, Linux {}, as {rights}",
                it.cpu, it.cores, it.memory, it.kernel
            )
        };
        return Some(format!(
            "its runs are from another machine ({}; this one: {})",
            say(&there.machine),
            say(&here.machine)
        ));
    }
    if there.version != here.version {
        return Some(format!(
            "its runs are from version {}, this is {}",
            there.version, here.version
        ));
    }
    if there.program != here.program {
        return Some("its runs are from another build of this version".into());
    }
    (there.extent != here.extent).then(|| format!("its runs are of a {} report", there.extent))
}

/// Writes to a temporary file beside, then renames it.
fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let directory = path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new()
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .tempfile_in(directory)?;
        file.write_all(content)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
