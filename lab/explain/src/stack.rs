//! Represents a stack of function calls by names.

use std::fmt;
use std::sync::Arc;

/// Behind the names of kernel functions in folded stacks, as the tools for flame graphs have it.
const KERNEL_SUFFIX: &str = "_[k]";
/// Between module and symbol in folded stacks, as DTrace has it.
const MODULE_MARK: char = '`';

/// One function of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// A function of the kernel; `None`: one that `/proc/kallsyms` does not name.
    Kernel(Option<Arc<str>>),
    /// A function of a program or library.
    User {
        /// The file's name without its directory, or what the kernel calls memory without a file.
        module: Arc<str>,
        /// `None`: the file has no symbol for it.
        symbol: Option<Arc<str>>,
    },
}

impl Frame {
    /// Whether the function belongs to the kernel.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        matches!(self, Frame::Kernel(_))
    }

    /// The frame that [`Display`](fmt::Display) writes as `text`.
    #[must_use]
    pub fn parse(text: &str) -> Frame {
        let known = |symbol: &str| (!symbol.starts_with('[')).then(|| symbol.into());
        if let Some(symbol) = text.strip_suffix(KERNEL_SUFFIX) {
            return Frame::Kernel(known(symbol));
        }
        match text.split_once(MODULE_MARK) {
            Some((module, symbol)) => Frame::User {
                module: module.into(),
                symbol: Some(symbol.into()),
            },
            None => Frame::User {
                module: text.trim_matches(['[', ']']).into(),
                symbol: None,
            },
        }
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = match self {
            Frame::Kernel(Some(symbol)) => format!("{symbol}{KERNEL_SUFFIX}"),
            Frame::Kernel(None) => format!("[unknown]{KERNEL_SUFFIX}"),
            Frame::User {
                module,
                symbol: Some(symbol),
            } => format!("{module}{MODULE_MARK}{symbol}"),
            Frame::User {
                module,
                symbol: None,
            } => format!("[{module}]"),
        };
        f.write_str(&printable(&written))
    }
}

/// A foreign name, without terminal control characters and frame separators.
pub(crate) fn printable(name: &str) -> String {
    name.replace(|it: char| it.is_control() || it == ';', ":")
}

/// A stack in one line, outermost first: `program;outer;...;leaf`. `frames` begin with the leaf.
#[must_use]
pub fn fold<'a>(program: &str, frames: impl DoubleEndedIterator<Item = &'a Frame>) -> String {
    let mut folded = printable(program);
    for frame in frames.rev() {
        folded.push(';');
        folded.push_str(&frame.to_string());
    }
    folded
}

/// The frames of a folded stack, the leaf first, without the program's name.
#[must_use]
pub fn unfold(folded: &str) -> Vec<Frame> {
    let mut frames: Vec<_> = folded.split(';').skip(1).map(Frame::parse).collect();
    frames.reverse();
    frames
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn fold__names_command_no_terminal() {
        let hostile = Frame::User {
            module: "a\n1".into(),
            symbol: Some("\x1b[2J;b".into()),
        };
        let folded = fold("p\r", [hostile].iter());
        assert_eq!(folded, "p:;a:1`:[2J:b");
    }

    #[test]
    fn unfold__is_the_opposite_of_fold() {
        let user = |module: &str, symbol: Option<&str>| Frame::User {
            module: module.into(),
            symbol: symbol.map(Into::into),
        };
        let frames = [
            Frame::Kernel(Some("_copy_to_iter".into())),
            Frame::Kernel(None),
            user("libc.so.6", None),
            user("program", Some("main")),
        ];
        let folded = fold("a;b", frames.iter());
        assert_eq!(
            folded,
            "a:b;program`main;[libc.so.6];[unknown]_[k];_copy_to_iter_[k]"
        );
        assert_eq!(unfold(&folded), frames);
    }
}
