//! Runs libiscsi's `iscsi-test-cu`, and reads its results by family.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A test that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// A busy machine takes some minutes for the whole suite.
const WHOLE: Duration = Duration::from_secs(900);

/// Lines that show where it was.
const LAST_LINES: usize = 20;

/// What fails, as `conformance.md` explains.
pub const KNOWN: [(&str, &str); 1] = [("GetLBAStatus", "UnmapSingle")];

/// Tests of a family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
}

/// What became of all tests.
#[derive(Debug, Default)]
pub struct Outcome {
    pub families: BTreeMap<String, Counts>,
    /// Of a family and its test what the tool said.
    pub failed: BTreeMap<(String, String), String>,
    /// The tool ended as it does when it has run all tests.
    pub is_whole: bool,
    /// What it said last: of a test that hangs, its name and how far it came.
    pub last: String,
}

/// The tool is installed; else it is said that the test is skipped.
pub fn is_there(tool: &str) -> bool {
    let probe = Command::new(tool)
        .arg("--help")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if probe.is_err() {
        eprintln!("skipped: {tool} is not installed: it is in the Debian package libiscsi-bin");
    }
    probe.is_ok()
}

impl Outcome {
    /// What failed and is not known to.
    fn unknown(&self) -> BTreeMap<(&str, &str), &str> {
        let failed = self.failed.iter();
        let failed = failed.map(|((family, test), said)| ((&**family, &**test), &**said));
        failed.filter(|(it, _)| !KNOWN.contains(it)).collect()
    }

    /// What two runs show: a test that passes in one of them passes.
    fn with(mut self, other: Outcome) -> Outcome {
        self.failed.retain(|it, _| other.failed.contains_key(it));
        for (family, counts) in other.families {
            let before = self.families.entry(family).or_default();
            if counts.passed > before.passed {
                *before = counts;
            }
        }
        self.is_whole &= other.is_whole;
        self.last = other.last;
        self
    }
}

/// Runs all tests against the disk at `url`, by two paths, with what it says in `directory`. What is on the disk is
/// lost. The tool waits 3 s for some answers, and a busy machine takes longer: a test fails if it fails in two runs.
pub fn run(url: &str, directory: &Path) -> Outcome {
    let first = run_once(url, directory);
    if first.is_whole && !first.unknown().is_empty() {
        println!("once more: {:#?} failed", first.unknown());
        return first.with(run_once(url, directory));
    }
    first
}

fn run_once(url: &str, directory: &Path) -> Outcome {
    let log = directory.join("iscsi-test-cu.log");
    let said = File::create(&log).unwrap();
    // With the offset of the other one: else each overwrites what the other says.
    let errors = said.try_clone().unwrap();
    let mut child = Command::new("iscsi-test-cu")
        .args(["--dataloss", "--verbose", "--test=ALL", url, url])
        .stdin(Stdio::null())
        .stdout(said)
        .stderr(errors)
        .spawn()
        .unwrap();
    let since = Instant::now();
    let (mut heard, mut bytes) = (since, 0);
    while child.try_wait().unwrap().is_none() {
        let now = std::fs::metadata(&log).unwrap().len();
        if now > bytes {
            (heard, bytes) = (Instant::now(), now);
        }
        if heard.elapsed() > PATIENCE || since.elapsed() > WHOLE {
            child.kill().unwrap();
            child.wait().unwrap();
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    parse(&String::from_utf8_lossy(&std::fs::read(&log).unwrap()))
}

/// `said`: of each suite its tests, of each test what went wrong, and a summary.
fn parse(said: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let mut suites = said.split("\nSuite: ");
    suites.next();
    for suite in suites {
        let (family, rest) = suite.split_once('\n').unwrap_or((suite, ""));
        let mut tests = rest.split("  Test: ");
        tests.next();
        for test in tests {
            let name = test.split(' ').next().unwrap_or_default();
            let counts = outcome.families.entry(family.to_owned()).or_default();
            // CUnit numbers the assertions that failed.
            if test.contains("\n    1. ") {
                counts.failed += 1;
                let name = (family.to_owned(), name.to_owned());
                outcome.failed.insert(name, test.to_owned());
            } else if test.contains("[SKIPPED]") {
                counts.skipped += 1;
            } else {
                counts.passed += 1;
            }
        }
    }
    outcome.is_whole = said.contains("Tests completed");
    let lines: Vec<_> = said.lines().collect();
    outcome.last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
    outcome
}

/// Rows of the table in `conformance.md`: family, passed, failed, skipped.
pub fn documented(document: &str) -> BTreeMap<String, Counts> {
    let table = document
        .split("| family | passed | failed | skipped |")
        .nth(1);
    let rows = table.expect("the table of iscsi-test-cu").lines().skip(2);
    let rows = rows.take_while(|row| row.starts_with('|'));
    let cells =
        |row: &str| -> Vec<String> { row.split('|').map(|it| it.trim().to_owned()).collect() };
    rows.map(|row| {
        let cells = cells(row);
        let number = |at: usize| cells[at].parse().unwrap();
        let counts = Counts {
            passed: number(2),
            failed: number(3),
            skipped: number(4),
        };
        (cells[1].clone(), counts)
    })
    .collect()
}

/// Holds an outcome against `conformance.md`: what passed once passes.
pub fn check(outcome: &Outcome, document: &str) {
    for (family, counts) in &outcome.families {
        let Counts {
            passed,
            failed,
            skipped,
        } = counts;
        println!("| {family} | {passed} | {failed} | {skipped} |");
    }
    assert!(
        outcome.is_whole,
        "iscsi-test-cu did not end: {}",
        outcome.last
    );
    let news = outcome.unknown();
    assert!(news.is_empty(), "{news:#?} failed");
    for (family, before) in documented(document) {
        let now = outcome.families.get(&family).copied().unwrap_or_default();
        assert!(
            now.passed >= before.passed,
            "{family}: {now:?}, and it was {before:?}"
        );
    }
}
