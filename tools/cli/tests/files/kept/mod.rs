//! Tests which attributes a copy keeps, and compares with rsync.

mod extended;
mod hard_links;
mod links;
mod owner;
mod permissions;

use std::path::Path;
use std::process::Command;

use super::lab::*;

fn sync(options: &[&str], from: String, to: String) -> Command {
    let mut command = zerolane();
    command.arg("sync").args(options).args([from, to]);
    command
}

fn cp(options: &[&str], from: String, to: String) -> Command {
    let mut command = zerolane();
    command.args(["cp", "-r"]).args(options).args([from, to]);
    command
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Both directions: source and target of `tree`, and the path where the copy ends up.
fn ways(lab: &Lab) -> [(String, String, std::path::PathBuf); 2] {
    [
        (text(&lab.local("tree")), lab.there("up"), lab.share("up")),
        (
            lab.there("tree"),
            text(&lab.local("down")),
            lab.local("down"),
        ),
    ]
}

/// Runs rsync. Returns its exit code, or `None` if it is not installed.
fn rsync(options: &[&str], from: &Path, to: &Path) -> Option<i32> {
    let mut rsync = Command::new("rsync");
    rsync.args(options).arg(format!("{}/", text(from))).arg(to);
    match rsync.output() {
        Ok(out) => out.status.code(),
        Err(_) => {
            eprintln!("skipped: there is no rsync");
            None
        }
    }
}
