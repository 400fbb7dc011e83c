//! Classifies a failed run: wrong bytes, a contender that gave up, or a failure outside the contender.

use std::fmt;

use anyhow::Error;
use serde::{Deserialize, Serialize};
use zerolane_cli::exit::Exit;

use crate::contender;

/// What an end's failure says of the contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Failure {
    /// What arrived is not what was sent.
    Corrupt,
    /// It gave up its peer: that did not answer, or is gone.
    GaveUp,
    /// Something of this program or the machine.
    Other,
}

impl Failure {
    /// That of an error at an end.
    pub(super) fn of(error: &Error) -> Failure {
        match Exit::of(error) == Exit::Corrupt {
            true => Failure::Corrupt,
            false if contender::has_given_up(error) => Failure::GaveUp,
            false => Failure::Other,
        }
    }
}

/// What ends said of their failure, as the orchestrator has it.
#[derive(Debug)]
struct Said {
    words: String,
    failure: Failure,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for Said {}

/// The error of an end that failed so, in these words.
pub(crate) fn said(words: String, failure: Failure) -> Error {
    let error = Error::new(Said { words, failure });
    match failure {
        Failure::Corrupt => error.context(Exit::Corrupt),
        Failure::GaveUp | Failure::Other => error,
    }
}

/// Whether a run failed for nothing but that its contender gave up.
pub(crate) fn is_giving_up(error: &Error) -> bool {
    let said = error.downcast_ref::<Said>();
    said.is_some_and(|it| it.failure == Failure::GaveUp)
}

/// One error of several ends': that of wrong bytes, which explains the others; or what each says, once.
pub(crate) fn together(mut errors: Vec<Error>) -> Error {
    let corrupt = |it: &Error| Exit::of(it) == Exit::Corrupt;
    if let Some(at) = errors.iter().position(corrupt) {
        return errors.swap_remove(at);
    }
    let failure = match errors.iter().all(is_giving_up) {
        true => Failure::GaveUp,
        false => Failure::Other,
    };
    let mut words: Vec<String> = Vec::new();
    for said in errors.iter().map(|it| format!("{it:#}")) {
        if !words.contains(&said) {
            words.push(said);
        }
    }
    match errors.pop() {
        // As it is, with its causes and its exit code.
        Some(only) if words.len() < 2 => only,
        _ => said(words.join("; "), failure),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn together__is_giving_up_if_all_gave_up() {
        let gave_up = |words: &str| said(words.into(), Failure::GaveUp);
        let other = || said("no such core".into(), Failure::Other);
        assert!(is_giving_up(&together(vec![gave_up("a"), gave_up("b")])));
        assert!(is_giving_up(&together(vec![gave_up("a")]).context("more")));
        for mixed in [vec![gave_up("a"), other()], vec![other(), gave_up("a")]] {
            assert!(!is_giving_up(&together(mixed)));
        }
        let wrong = said("byte 3".into(), Failure::Corrupt);
        let error = together(vec![gave_up("a"), other(), wrong]);
        assert_eq!(Exit::of(&error), Exit::Corrupt);
    }
}
