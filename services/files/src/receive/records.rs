//! Takes the records of a pack, each only where the protocol allows it.

use super::FileReceiver;
use super::hard_links::First;
use super::open::NOT_OPEN;
use super::same::SameAs;
use crate::error::Error;
use crate::limits::{FEEDBACK_FAILURES, INLINE_BYTES};
use crate::message::Record;
use crate::pack::PackReader;

impl FileReceiver<'_> {
    pub(super) fn take_pack(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut pack = PackReader::parse(bytes)?;
        while let Some(record) = pack.next_record()? {
            if self.finished || self.run > 0 {
                return Err(Error::Protocol("a record after the last one"));
            }
            self.take_record(record, &mut pack)?;
            // A pack has room for thousands of records that fail. Reporting blocks until the sender takes the reports.
            if self.failures.len() >= FEEDBACK_FAILURES {
                self.report()?;
            }
        }
        match pack.is_exhausted() {
            true => Ok(()),
            false => Err(Error::Protocol("contents that belong to no record")),
        }
    }

    fn take_record(&mut self, record: Record<'_>, pack: &mut PackReader<'_>) -> Result<(), Error> {
        if !self.may_come(&record) {
            return Err(NOT_OPEN);
        }
        if let Some(expected) = &mut self.expected {
            expected.check(&record)?;
        }
        if let Record::Attribute { name, size } = record {
            return self.attribute(name, pack.take_contents(size as usize)?);
        }
        if record == Record::Shared {
            return self.shared();
        }
        // Earlier attributes belong to this record alone.
        self.extended = std::mem::take(&mut self.coming);
        self.is_shared = std::mem::take(&mut self.coming_shared);
        self.check_meta(&record)?;
        self.begin(&record)?;
        match record.with_modes(&self.modes) {
            Record::From { position } => return self.go_on_from(position),
            Record::Reenter { name, meta } => return self.reenter(name, meta),
            Record::Total { files, bytes } => self.observer.counted(files, bytes),
            Record::Enter { name, meta } => return self.enter(name, meta),
            Record::Leave => return self.leave(),
            Record::Link { name, target, meta } => return self.link(name, target, &meta),
            Record::File {
                name,
                meta,
                size,
                digest,
            } => {
                if size as usize > INLINE_BYTES {
                    return Err(Error::Protocol("too large a file in a pack"));
                }
                let contents = pack.take_contents(size as usize)?;
                return self.file(name, &meta, contents, &digest);
            }
            Record::Open {
                name,
                meta,
                size,
                number,
                resume,
            } => return self.open(name, meta, size, (number, resume)),
            Record::SetAttributes {
                name,
                size,
                meta,
                was,
            } => return self.settle_meta(name, size, &meta, &was),
            Record::Exchange { name, with } => return self.exchange(name, with),
            Record::Unreadable { name, cause } => self.unreadable(name, cause),
            Record::Skipped { name } => self.skipped(name),
            Record::Run { units } => return self.announce(units),
            Record::Hole { units } => return self.holes(units),
            Record::Keep { units } => return self.keep(units),
            Record::Patch { pieces } => return self.patch(&pieces, pack),
            Record::Stream { name, meta } => return self.stream(name, meta),
            Record::Part { size, digest } => return self.part(size, &digest, pack),
            Record::Close { digest } if self.stream.is_some() => return self.close_stream(&digest),
            Record::Close { digest } => return self.close(&digest),
            Record::Abandon { cause } if self.stream.is_some() => self.abandon_stream(cause),
            Record::Abandon { cause } => self.abandon(cause),
            Record::Finish => return self.finish(),
            Record::HardLink {
                name,
                level,
                first: path,
                size,
                meta,
                before,
            } => {
                let first = First {
                    level,
                    path,
                    size,
                    meta,
                    before,
                };
                return self.hard_link(name, &first);
            }
            Record::Same {
                name,
                directory,
                path,
                size,
                meta,
                was,
            } => {
                let as_ = SameAs {
                    directory,
                    path,
                    size,
                    meta,
                    was,
                };
                return self.same(name, &as_);
            }
            // Handled above.
            Record::Attribute { .. } | Record::Shared => {}
        }
        Ok(())
    }

    /// Whether it belongs to the open file, or needs none and none is open.
    fn may_come(&self, record: &Record<'_>) -> bool {
        let (file, stream) = (self.open.is_some(), self.stream.is_some());
        match record {
            Record::Run { .. }
            | Record::Hole { .. }
            | Record::Keep { .. }
            | Record::Patch { .. } => file,
            Record::Part { .. } => stream,
            Record::Close { .. } | Record::Abandon { .. } => file || stream,
            _ => !file && !stream,
        }
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.finished = self.levels.is_empty();
        match self.finished {
            true => Ok(()),
            false => Err(Error::Protocol("finished inside a directory")),
        }
    }
}
