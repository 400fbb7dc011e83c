//! What is copied besides content, permissions and time, and compared with what rsync makes of it.

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

/// What there is in both directions: where `tree` is copied from, where to, and where that is then.
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

/// Runs rsync; whether there is one.
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
