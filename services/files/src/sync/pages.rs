//! Sends a listing in messages, and validates one that is received.

use super::sight::{Detail, Listing, Seen, Sight};
use crate::digest::Digest;
use crate::error::{Cause, Error};
use crate::filter_files::FilterText;
use crate::limits::{
    FILE_BYTES, FILTER_FILE_BYTES, LISTING_ENTRIES, LISTING_PAGE_BYTES, PATH_BYTES, RECORD_BYTES,
    TREE_DEPTH,
};
use crate::message::EntryKind;
use crate::name::{RelativePath, check_name};
use crate::port::{Buffer, Filled, Port};
use crate::stop::Stop;

/// Sends a listing.
pub(crate) fn send(mut port: Port, mut listing: impl Listing, stop: &Stop) -> Result<(), Error> {
    let mut depth = 1_usize;
    while depth > 0 {
        let mut buffer = acquire(&mut port)?;
        let mut len = 0;
        while depth > 0 && len + RECORD_BYTES <= LISTING_PAGE_BYTES {
            stop.check()?;
            let sight = listing.next()?;
            match &sight {
                Sight::Leave => depth -= 1,
                sight if sight.is_directory() => depth += 1,
                _ => {}
            }
            len += sight.encode(&mut buffer[len..]).ok_or(Error::Internal)?;
        }
        port.submit(buffer, len)?;
    }
    Ok(())
}

fn acquire(port: &mut Port) -> Result<Buffer, Error> {
    port.poll()?;
    loop {
        if let Some(buffer) = port.take_free() {
            return Ok(buffer);
        }
        port.wait()?;
    }
}

/// A listing that is being received.
pub(crate) struct Pages {
    port: Port,
    page: Option<Filled>,
    /// Bytes of the page that were read.
    read: usize,
    order: Order,
}

impl Pages {
    pub(crate) fn new(port: Port) -> Pages {
        Pages {
            port,
            page: None,
            read: 0,
            order: Order::default(),
        }
    }

    /// A listing whose top entries are paths, in any order. `leaving`: paths may lead out of a served directory, as
    /// with a login.
    pub(crate) fn of_paths(port: Port, leaving: bool) -> Pages {
        let mut pages = Pages::new(port);
        pages.order.paths = true;
        pages.order.leaving = leaving;
        pages
    }

    /// Expects the content of that many filter files of each directory.
    pub(crate) fn with_filter_files(mut self, files: usize) -> Pages {
        self.order.filter_files = files;
        self.order.filters_due = files > 0;
        self
    }

    /// Ensures that a page with unread bytes is there.
    fn fetch(&mut self) -> Result<(), Error> {
        loop {
            match self.page.take() {
                Some(page) if self.read < page.len => {
                    self.page = Some(page);
                    return Ok(());
                }
                Some(page) => self.port.release(page.buffer),
                None => {}
            }
            self.read = 0;
            self.page = self.port.take_arrived();
            if self.page.is_none() {
                self.port.wait()?;
            }
        }
    }
}

impl Listing for Pages {
    fn next(&mut self) -> Result<Sight, Error> {
        self.fetch()?;
        let page = self.page.as_ref().ok_or(Error::Internal)?;
        let mut rest = &page.bytes()[self.read..];
        let sight = Sight::decode(&mut rest)?;
        self.read = page.len - rest.len();
        self.order.check(&sight)?;
        Ok(sight)
    }

    fn digest(&mut self, seen: &Seen) -> Result<Digest, Cause> {
        match seen.detail {
            Detail::Digest(digest) => Ok(digest),
            _ => Err(Cause::ChangedSinceListed),
        }
    }
}

/// The only permitted order of a listing.
#[derive(Debug)]
struct Order {
    /// The last name in each open directory.
    last: Vec<Vec<u8>>,
    /// Only a Leave is permitted.
    cut: bool,
    entries: u64,
    /// The entries at the top are paths.
    paths: bool,
    /// Such a path may lead out.
    leaving: bool,
    /// Filter files requested of each directory, and whether they must come next.
    filter_files: usize,
    filters_due: bool,
}

impl Default for Order {
    fn default() -> Order {
        Order {
            last: vec![Vec::new()],
            cut: false,
            entries: 0,
            paths: false,
            leaving: false,
            filter_files: 0,
            filters_due: false,
        }
    }
}

impl Order {
    fn check(&mut self, sight: &Sight) -> Result<(), Error> {
        self.entries += 1;
        if self.entries > LISTING_ENTRIES {
            return Err(Error::Protocol("a listing without end"));
        }
        if std::mem::take(&mut self.cut) && *sight != Sight::Leave {
            return Err(Error::Protocol("a listing that goes on after its end"));
        }
        if std::mem::take(&mut self.filters_due) != matches!(sight, Sight::Filters(_)) {
            return Err(Error::Protocol("filter files where none belong, or none"));
        }
        match sight {
            Sight::Filters(texts) => return self.filters(texts),
            Sight::Entry(seen) => {
                self.name(&seen.name)?;
                check_seen(seen)?;
                if seen.kind == EntryKind::Directory {
                    if self.last.len() > TREE_DEPTH + usize::from(self.paths) {
                        return Err(Error::Protocol("directories nest too deeply"));
                    }
                    self.last.push(Vec::new());
                    self.filters_due = self.filter_files > 0;
                }
            }
            Sight::Unseen { name, .. } => self.name(name)?,
            Sight::Cut { .. } => self.cut = true,
            Sight::Leave => drop(self.last.pop()),
        }
        Ok(())
    }

    fn filters(&self, texts: &[FilterText]) -> Result<(), Error> {
        let too_long = |it: &FilterText| match it {
            FilterText::Text(text) => text.len() > FILTER_FILE_BYTES,
            FilterText::Missing | FilterText::Unusable(_) => false,
        };
        match texts.len() != self.filter_files || texts.iter().any(too_long) {
            true => Err(Error::Protocol("filter files that cannot be")),
            false => Ok(()),
        }
    }

    fn name(&mut self, name: &[u8]) -> Result<(), Error> {
        if self.paths && self.last.len() == 1 {
            return match RelativePath::parse(name) {
                Ok(path) if self.leaving || !path.leaves() => Ok(()),
                _ => Err(Error::Protocol("a path that leads outside")),
            };
        }
        check_name(name).map_err(|_| Error::Protocol("a name that is not one component"))?;
        // The listing continued after its end.
        let last = (self.last.last_mut()).ok_or(Error::Protocol("a listing after its end"))?;
        if name <= last.as_slice() {
            return Err(Error::Protocol(
                "a listing out of order, or with a name twice",
            ));
        }
        last.clear();
        last.extend_from_slice(name);
        Ok(())
    }
}

fn check_seen(seen: &Seen) -> Result<(), Error> {
    let link = match &seen.detail {
        Detail::Link(target) => {
            if target.is_empty() || target.len() > PATH_BYTES || target.contains(&0) {
                return Err(Error::Protocol("a link's target that cannot be"));
            }
            true
        }
        _ => false,
    };
    if link != (seen.kind == EntryKind::Link) {
        return Err(Error::Protocol("a link without target, or one of no link"));
    }
    match seen.size > FILE_BYTES || seen.meta.mtime_nanoseconds > 999_999_999 {
        true => Err(Error::Protocol("a size or time that cannot be")),
        false => Ok(()),
    }
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
