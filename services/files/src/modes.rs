//! Changes permissions during a copy, as rsync's `--chmod` does.

use crate::umask::umask;
use std::str::FromStr;

/// Changes of the permissions of a source's files and directories: those of `chmod`, separated by commas. A leading `D`
/// or `F` restricts a change to directories, or to everything else.
///
/// ```
/// use zerolane_files::Modes;
/// let modes: Modes = "D755,F644".parse()?;
/// let also: Modes = "ug+w,Fo-w,+X".parse()?;
/// let modes = modes.and(also);
/// assert!("g+s".parse::<Modes>().is_err());
/// # Ok::<(), zerolane_files::ModesError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    changes: Vec<Change>,
}

/// Why a text is not a list of changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModesError {
    /// `chmod` would not accept it.
    #[error("not a change of permissions, such as ug+rw, go=rX, o=g, D755 or F644: {0}")]
    Change(String),
    /// Set-user-ID, set-group-ID and sticky bits are not allowed.
    #[error("a copy never sets set-user-ID, set-group-ID and sticky bits: {0}")]
    Special(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    /// `Some`: only for directories (true), or only for everything else (false).
    directories: Option<bool>,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Sets the mode.
    Set(u32),
    /// Changes the permissions of these classes (a bit each, in the place of `x`), limited to `mask`.
    Classes {
        classes: u32,
        mask: u32,
        operator: Operator,
        what: What,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Remove,
    Equal,
}

/// The permissions of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// These three bits; with `x_if_any`, `x` only for directories and files that some class may execute.
    Bits { bits: u32, x_if_any: bool },
    /// The permissions of a class, whose bits begin at this bit.
    Copied(u32),
}

const ALL: u32 = 0o111;

impl Modes {
    /// Applies these changes, then the others.
    pub fn and(mut self, others: Modes) -> Modes {
        self.changes.extend(others.changes);
        self
    }

    /// The permissions after all changes.
    pub(crate) fn applied(&self, mode: u32, directory: bool) -> u32 {
        let executable = directory || mode & ALL != 0;
        let its = self.changes.iter();
        its.filter(|it| it.directories.is_none_or(|only| only == directory))
            .fold(mode, |mode, it| it.how.applied(mode, executable))
    }
}

impl How {
    fn applied(self, mode: u32, executable: bool) -> u32 {
        let How::Classes {
            classes,
            mask,
            operator,
            what,
        } = self
        else {
            let How::Set(to) = self else { return mode };
            return mode & !0o777 | to;
        };
        let bits = match what {
            What::Bits { bits, x_if_any } if x_if_any && !executable => bits & !1,
            What::Bits { bits, .. } => bits,
            What::Copied(from) => (mode >> from) & 7,
        };
        let bits = (classes * bits) & mask;
        match operator {
            Operator::Add => mode | bits,
            Operator::Remove => mode & !bits,
            Operator::Equal => mode & !(classes * 7) | bits,
        }
    }
}

impl FromStr for Modes {
    type Err = ModesError;

    fn from_str(text: &str) -> Result<Modes, ModesError> {
        let changes = text.split(',').map(|it| Change::parse(it, umask()));
        let changes = changes.collect::<Result<_, _>>()?;
        Ok(Modes { changes })
    }
}

impl Change {
    /// `umask` limits a change that names no class.
    fn parse(text: &str, umask: u32) -> Result<Change, ModesError> {
        let wrong = || ModesError::Change(text.to_owned());
        let (directories, rest) = match text.as_bytes() {
            [b'D', ..] => (Some(true), &text[1..]),
            [b'F', ..] => (Some(false), &text[1..]),
            _ => (None, text),
        };
        if rest.starts_with(|it: char| it.is_ascii_digit()) {
            let mode = u32::from_str_radix(rest, 8).ok();
            let how = match mode.filter(|&mode| mode <= 0o7777).ok_or_else(wrong)? {
                mode if mode > 0o777 => return Err(ModesError::Special(text.to_owned())),
                mode => How::Set(mode),
            };
            return Ok(Change { directories, how });
        }
        let end = rest.find(['+', '-', '=']).ok_or_else(wrong)?;
        let (named, rest) = rest.split_at(end);
        let classes = named.chars().try_fold(0, |classes, class| {
            let class = match class {
                'a' => ALL,
                _ => 1 << shift(class)?,
            };
            Some(classes | class)
        });
        let operator = match rest.as_bytes()[0] {
            b'+' => Operator::Add,
            b'-' => Operator::Remove,
            _ => Operator::Equal,
        };
        let (classes, mask) = match classes.ok_or_else(wrong)? {
            0 => (ALL, !umask),
            classes => (classes, !0),
        };
        let how = How::Classes {
            classes,
            mask,
            operator,
            what: What::parse(&rest[1..], text)?,
        };
        Ok(Change { directories, how })
    }
}

impl What {
    fn parse(letters: &str, text: &str) -> Result<What, ModesError> {
        let mut copied = letters.chars();
        if let (Some(from), None) = (copied.next().and_then(shift), copied.next()) {
            return Ok(What::Copied(from));
        }
        let (mut bits, mut x_if_any) = (0, false);
        for letter in letters.chars() {
            bits |= match letter {
                'r' => 4,
                'w' => 2,
                'x' => 1,
                'X' => {
                    x_if_any = true;
                    1
                }
                's' | 't' => return Err(ModesError::Special(text.to_owned())),
                _ => return Err(ModesError::Change(text.to_owned())),
            };
        }
        Ok(What::Bits { bits, x_if_any })
    }
}

/// The position of the bits of a class.
fn shift(class: char) -> Option<u32> {
    match class {
        'u' => Some(6),
        'g' => Some(3),
        'o' => Some(0),
        _ => None,
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn applied__as_rsync_does() {
        for (text, mode, directory, expected) in [
            ("644", 0o777, false, 0o644),
            ("D755,F644", 0o700, true, 0o755),
            ("D755,F644", 0o700, false, 0o644),
            ("u+w", 0o444, false, 0o644),
            ("ug+w,Fo-w", 0o446, false, 0o664),
            ("ug+w,Fo-w", 0o446, true, 0o666),
            ("a=r", 0o777, false, 0o444),
            ("go=", 0o777, false, 0o700),
            ("a+X", 0o644, false, 0o644),
            ("a+X", 0o744, false, 0o755),
            ("a+X", 0o600, true, 0o711),
            ("a-x,a+X", 0o700, false, 0o711),
            ("g=u", 0o740, false, 0o770),
            ("o=g,g-o", 0o750, false, 0o705),
            ("u=rwx,go=rX", 0o755, false, 0o755),
            ("a+rwx", 0, false, 0o777),
            ("u+", 0o640, false, 0o640),
            // Bits beyond `0o777` stay as they are.
            ("o+r", 0o4640, false, 0o4644),
        ] {
            let modes: Modes = text.parse().unwrap();
            let found = modes.applied(mode, directory);
            assert_eq!(found, expected, "{text} of {mode:o}: {found:o}");
        }
        // A change that names no class is limited by the umask.
        for (text, mode, expected) in [
            ("+w", 0o444, 0o644),
            ("=rwX", 0o700, 0o755),
            ("-w", 0o666, 0o466),
            ("=", 0o666, 0),
        ] {
            let modes = Modes {
                changes: vec![Change::parse(text, 0o022).unwrap()],
            };
            assert_eq!(modes.applied(mode, false), expected, "{text}");
        }
    }

    #[test]
    fn from_str__what_cannot_be() {
        for text in [
            "", "r", "u", "u~w", "8", "77777", "u+q", "FD644", "u+w,", "g=uo", "+w\u{e9}",
            "u+wg+w", "D",
        ] {
            let wrong = text.parse::<Modes>();
            assert!(
                matches!(wrong, Err(ModesError::Change(_))),
                "{text:?}: {wrong:?}"
            );
        }
        for text in ["D2775", "u+s", "g=s", "+t", "7777", "u+rwxs"] {
            assert!(
                matches!(text.parse::<Modes>(), Err(ModesError::Special(_))),
                "{text}"
            );
        }
    }
}
