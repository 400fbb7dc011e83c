//! Reads the kernel's counters of an interface.

use std::{fs, io};

use super::{Error, Namespace, Result};

/// Bytes at an interface since it was made, with their Ethernet headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes that came in.
    pub received: u64,
    /// Bytes that went out.
    pub sent: u64,
}

impl Namespace {
    /// What each interface has carried, as they were made.
    ///
    /// # Errors
    /// As [`enter_thread`](Self::enter_thread), and [`Error::Io`] if an interface is gone or has another name.
    pub fn counters(&self) -> Result<Vec<Counters>> {
        // The file shows the namespace of the thread that reads it.
        const FILE: &str = "/proc/thread-self/net/dev";
        let read = self.enter_thread(|| fs::read_to_string(FILE))?;
        let table = read.map_err(|error| Error::io(format!("read {FILE}"), error))?;
        let of = |device: &str| {
            counters_in(&table, device).ok_or_else(|| {
                let none = io::Error::from(io::ErrorKind::NotFound);
                Error::io(
                    format!("read the counters of {device} in {}", self.name),
                    none,
                )
            })
        };
        self.interfaces.iter().map(|it| of(it.device())).collect()
    }
}

/// The row of `device`: eight numbers of what it received, eight of what it sent, the bytes first.
fn counters_in(table: &str, device: &str) -> Option<Counters> {
    let row = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        (name.trim() == device).then_some(())?;
        let numbers: Vec<u64> = numbers.split_whitespace().flat_map(str::parse).collect();
        Some(Counters {
            received: *numbers.first()?,
            sent: *numbers.get(8)?,
        })
    };
    table.lines().find_map(row)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn counters_in__the_row_of_the_interface() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets errs\n    \
             lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  va_0: 21 2 3 4 5 6 7 8 29 10 11 12 13 14 15 16\n";
        let expected = Counters {
            received: 21,
            sent: 29,
        };
        assert_eq!(counters_in(table, "va_0"), Some(expected));
        assert_eq!(counters_in(table, "va_1"), None);
        assert_eq!(counters_in("va_0: 1 2", "va_0"), None);
    }
}
