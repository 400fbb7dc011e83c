//! Sends extended attributes, before the record of their file.

use super::FileSender;
use crate::error::{Cause, Error};
use crate::extended::Extended;
use crate::message::Record;
use rustix::fd::BorrowedFd;

impl FileSender<'_> {
    /// The requested attributes of `file`.
    pub(super) fn extended(&self, file: BorrowedFd<'_>) -> Result<Extended, Cause> {
        match self.options.attributes.are_extended() {
            true => Extended::read(file, self.options.attributes),
            false => Ok(Extended::default()),
        }
    }

    /// Sends them. They belong to the next record.
    pub(super) fn add_extended(&mut self, extended: &Extended) -> Result<(), Error> {
        for (name, value) in extended.iter() {
            self.make_room(value.len())?;
            let (pack, buffer) = self.pack_buffer()?;
            let at = pack.contents_at();
            buffer[at..][..value.len()].copy_from_slice(value);
            let size = value.len() as u32;
            self.add_fitting(&Record::Attribute { name, size }, value.len())?;
        }
        Ok(())
    }
}
