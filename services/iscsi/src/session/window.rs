//! Keeps the command window: CmdSN, ExpCmdSN and MaxCmdSN (RFC 7143, 4.2.2.1).

use crate::limits::WINDOW;

/// Which command numbers are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    expected: u32,
    /// One behind the last number, less [`WINDOW`]: it goes on as commands end.
    over: u32,
}

/// How to treat a command, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is the next.
    Taken,
    /// It is outside of the window: the standard wants it to be ignored.
    Ignored,
    /// Commands before it are missing, which cannot be with one connection.
    Gap,
}

impl Window {
    /// The first command has this number.
    pub(crate) fn from(first: u32) -> Window {
        Window {
            expected: first,
            over: first,
        }
    }

    pub(crate) fn expected(&self) -> u32 {
        self.expected
    }

    pub(crate) fn most(&self) -> u32 {
        self.over.wrapping_add(WINDOW - 1)
    }

    pub(crate) fn take(&mut self, number: u32) -> Turn {
        let ahead = number.wrapping_sub(self.expected);
        let room = self.most().wrapping_add(1).wrapping_sub(self.expected);
        match ahead {
            _ if ahead >= room => Turn::Ignored,
            0 => {
                self.expected = self.expected.wrapping_add(1);
                Turn::Taken
            }
            _ => Turn::Gap,
        }
    }

    /// Records the end of an accepted command.
    pub(crate) fn end(&mut self) {
        self.over = self.over.wrapping_add(1);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn Window__takes_the_next_and_ignores_what_is_outside() {
        for first in [0, 7, u32::MAX - 3] {
            let mut window = Window::from(first);
            assert_eq!(window.take(first.wrapping_sub(1)), Turn::Ignored);
            assert_eq!(window.take(first.wrapping_add(WINDOW)), Turn::Ignored);
            assert_eq!(window.take(first.wrapping_add(1)), Turn::Gap);
            for number in 0..WINDOW {
                assert_eq!(window.take(first.wrapping_add(number)), Turn::Taken);
            }
            let next = first.wrapping_add(WINDOW);
            assert_eq!(window.take(next), Turn::Ignored);
            window.end();
            assert_eq!(window.take(next), Turn::Taken);
        }
    }
}
