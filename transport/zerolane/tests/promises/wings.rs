//! Tests that the crates' dependencies, as `cargo metadata` reports them, keep to the table of wings.

use super::WINGS;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The wings that the crates of a wing may depend on.
const MAY_USE: [(&str, &[&str]); 4] = [
    ("transport", &["transport"]),
    ("services", &["transport", "services"]),
    ("bindings", &["transport", "services", "bindings"]),
    ("tools", &["transport", "services", "tools"]),
];

/// The crates of the laboratory that the command uses; the others make figures for developers.
const RUN_BY_USERS: [&str; 4] = ["netlab", "netsim", "trace", "explain"];

/// The wing and the directory of the crate at `path`.
fn place(path: &str) -> (&str, &str) {
    let mut parts = path.rsplit('/');
    let name = parts.next().unwrap();
    (parts.next().unwrap(), name)
}

fn may_use(from: &str, to: (&str, &str), kind: &Value) -> bool {
    let (wing, name) = to;
    let Some((_, wings)) = MAY_USE.iter().find(|it| it.0 == from) else {
        // The laboratory may use anything.
        return true;
    };
    // Every test may emulate a network.
    let tested = kind == "dev" && ["netlab", "netsim"].contains(&name);
    let run = from == "tools" && RUN_BY_USERS.contains(&name);
    wings.contains(&wing) || wing == "lab" && (tested || run)
}

#[test]
fn wings__crates_depend_on_what_their_wing_may_use() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(env!("CARGO"));
    command.args([
        "metadata",
        "--no-deps",
        "--offline",
        "--format-version",
        "1",
    ]);
    let output = match command.current_dir(root).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: this user cannot run cargo ({error})");
            return;
        }
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let (mut edges, mut wrong) = (0, vec![]);
    for package in packages {
        let manifest = package["manifest_path"].as_str().unwrap();
        let (wing, name) = place(manifest.strip_suffix("/Cargo.toml").unwrap());
        assert!(WINGS.contains(&wing), "{name} is in no wing");
        for dependency in package["dependencies"].as_array().unwrap() {
            let Some(path) = dependency["path"].as_str() else {
                continue;
            };
            edges += 1;
            if !may_use(wing, place(path), &dependency["kind"]) {
                wrong.push(format!("{wing}/{name} on {path}"));
            }
        }
    }
    assert!(packages.len() > 20 && edges > 40, "{edges} edges");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
