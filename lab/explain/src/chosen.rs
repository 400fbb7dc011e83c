//! Finds the variants of C library functions chosen for this processor at start, `memcpy` first of all.
//!
//! Each function has several variants, and a library without symbols names none of them. The choice in this process is the
//! choice in all processes that use the same library.

use std::fs;
use std::ops::Range;
use std::sync::Arc;

use gimli::{BaseAddresses, EhFrameHdr, LittleEndian, Pointer};
use nix::libc;
use object::{Object, ObjectSection, ObjectSegment};

use crate::processes::{Mapping, Processes};

/// Where the bodies chosen are in the library's file.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    path: Arc<str>,
    bodies: Vec<(Range<u64>, &'static str)>,
}

impl Chosen {
    /// As chosen for this process. Empty where its C library is part of the program.
    pub(crate) fn find() -> Chosen {
        let own = std::process::id();
        let mut processes = Processes::new(false, true);
        processes.look_up(own);
        let functions = [
            ("memcpy", libc::memcpy as *const () as u64),
            ("memmove", libc::memmove as *const () as u64),
            ("memset", libc::memset as *const () as u64),
            ("memcmp", libc::memcmp as *const () as u64),
        ];
        let mut chosen = Chosen::default();
        for (name, address) in functions {
            let Some(mapping) = processes.mapping(own, address) else {
                continue;
            };
            if let Some(body) = body_at(mapping, address) {
                chosen.path = mapping.path.clone();
                chosen.bodies.push((body, name));
            }
        }
        chosen
    }

    /// The function at this offset of the file at `path`.
    pub(crate) fn name(&self, path: &str, offset: u64) -> Option<&'static str> {
        let mut bodies = self.bodies.iter().filter(|_| *self.path == *path);
        bodies.find(|it| it.0.contains(&offset)).map(|it| it.1)
    }
}

/// From where to where in its file the function at `address` is.
fn body_at(mapping: &Mapping, address: u64) -> Option<Range<u64>> {
    let offset = address.checked_sub(mapping.start)? + mapping.offset;
    let data = fs::read(&*mapping.path).ok()?;
    let file = object::File::parse(&*data).ok()?;
    // The table has addresses; samples have places in the file.
    let loaded = file.segments().find_map(|segment| {
        let (start, len) = segment.file_range();
        (start..start + len)
            .contains(&offset)
            .then(|| segment.address().wrapping_sub(start))
    })?;
    let body = extent(&file, offset.wrapping_add(loaded))?;
    Some(body.start.wrapping_sub(loaded)..body.end.wrapping_sub(loaded))
}

/// The addresses of the function at `address`, by the table that serves to unwind stacks.
fn extent(file: &object::File<'_>, address: u64) -> Option<Range<u64>> {
    let section = file.section_by_name(".eh_frame_hdr")?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(section.address());
    let header = EhFrameHdr::new(section.data().ok()?, LittleEndian);
    let header = header.parse(&bases, 8).ok()?;
    let table = header.table()?;
    let mut starts = table.iter(&bases);
    let mut found = None;
    while let Ok(Some((Pointer::Direct(start), _))) = starts.next() {
        match found {
            Some(begin) if start > address => return Some(begin..start),
            _ if start <= address => found = Some(start),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn find__what_this_process_copies_with() {
        let chosen = Chosen::find();
        if chosen.bodies.is_empty() {
            eprintln!("skipped: the C library is part of this program");
            return;
        }
        assert!(chosen.path.contains("libc"), "{chosen:?}");
        for (body, name) in &chosen.bodies {
            assert!((16..65536).contains(&(body.end - body.start)), "{chosen:?}");
            assert_eq!(chosen.name("/another/file", body.start), None);
            let found = chosen.name(&chosen.path, body.end - 1);
            assert!(
                found == Some(name) || found == Some("memcpy"),
                "{found:?}, not {name}"
            );
        }
    }
}
