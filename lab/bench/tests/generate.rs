//! Tests the generation of manual pages and completions, also for the commands for which `zerolane` starts this program.

#![allow(non_snake_case)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

fn zerolane(words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zerolane-bench"));
    let output = command.args(words).env("COLUMNS", "1000").output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The commands of a help text, and its long options.
fn commands(help: &str) -> Vec<&str> {
    let section = help.split_once("Commands:\n");
    let lines = section.map_or("", |(_, rest)| rest).lines();
    let lines = lines.take_while(|line| line.starts_with("  "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").collect()
}

fn options(text: &str) -> BTreeSet<String> {
    let starts = text.match_indices("--").filter(|(at, _)| {
        let before = text[..*at].chars().next_back();
        before.is_none_or(|it| !it.is_alphanumeric() && it != '-')
    });
    starts
        .map(|(at, _)| {
            let rest = text[at + 2..].chars();
            let name = rest.take_while(|it| it.is_ascii_lowercase() || *it == '-');
            name.collect::<String>()
        })
        .filter(|name| !name.is_empty())
        .collect()
}

/// Checks the pages of the command with these words and of all below it; returns how many there are.
fn check_pages(pages: &Path, words: &[&str]) -> usize {
    let page = ["zerolane"].iter().chain(words).copied();
    let page = pages.join(page.collect::<Vec<_>>().join("-") + ".1");
    let text = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{page:?}: {error}"));
    let help = zerolane(&[words, &["--help"]].concat());
    // A hyphen is escaped there.
    let described = options(&text.replace("\\-", "-").replace("\\fB", ""));
    let missing: Vec<_> = options(&help).difference(&described).cloned().collect();
    assert!(missing.is_empty(), "{page:?} does not have {missing:?}");
    let below = commands(&help);
    let below = below
        .iter()
        .map(|name| check_pages(pages, &[words, &[*name]].concat()));
    1 + below.sum::<usize>()
}

#[test]
fn generate__pages_of_all_commands_with_all_their_options() {
    let made = tempfile::tempdir().unwrap();
    zerolane(&["generate", made.path().to_str().unwrap()]);
    let pages = made.path().join("man1");
    let count = check_pages(&pages, &[]);
    assert!(count > 40, "{count}");
    let there = fs::read_dir(&pages).unwrap().count();
    assert_eq!(there, count, "and no page of a hidden one");
    let serve = fs::read_to_string(pages.join("zerolane-serve.1")).unwrap();
    assert!(serve.contains("nothing outside it can be reached"));
}

#[test]
fn generate__bash_completes_commands_and_options() {
    let made = tempfile::tempdir().unwrap();
    zerolane(&["generate", made.path().to_str().unwrap()]);
    for file in ["bash/zerolane.bash", "zsh/_zerolane", "fish/zerolane.fish"] {
        let text = fs::read_to_string(made.path().join(file)).unwrap();
        assert!(text.contains("read-only"), "{file}");
    }
    let complete = |words: &str, at: usize| {
        let script = format!(
            "set -e; source '{}'; COMP_WORDS=({words}); COMP_CWORD={at}; \
             _zerolane zerolane \"${{COMP_WORDS[{at}]}}\" \"${{COMP_WORDS[{}]}}\"; echo \"${{COMPREPLY[@]}}\"",
            made.path().join("bash/zerolane.bash").display(),
            at - 1
        );
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(complete("zerolane ser", 1), "serve\n");
    assert_eq!(complete("zerolane serve --read", 2), "--read-only\n");
    assert_eq!(complete("zerolane keys re", 2), "revoke\n");
    assert_eq!(complete("zerolane bench fl", 2), "flows\n");
    assert_eq!(complete("zerolane bench flows --par", 3), "--parallel\n");
    assert_eq!(complete("zerolane demo --si", 2), "--size\n");
}
