//! Sends a listing of the paths that a client named.

use super::session::Session;
use crate::digest::Digest;
use crate::error::{Cause, Error};
use crate::expand::Expander;
use crate::links::Links;
use crate::message::{Attributes, EntryKind, ListOptions};
use crate::name::RelativePath;
use crate::pump::{CONTROL, DATA};
use crate::root::{Root, kind_of, meta_of, stat_at};
use crate::sync::pages;
use crate::sync::sight::{Detail, Listing, Seen, Sight};
use crate::sync::walk::{Walker, see};
use rustix::fd::OwnedFd;
use rustix::fs::fstat;
use zerolane::Connection;

/// The entries that paths and patterns match, as one listing: at the top the paths, files first; a directory is
/// followed by its contents.
struct Asked<'a> {
    root: &'a Root,
    paths: std::vec::IntoIter<Result<Vec<u8>, Sight>>,
    options: ListOptions,
    /// The directory that is being listed, and the depth inside of it.
    inside: Option<(Walker, usize)>,
}

impl<'a> Asked<'a> {
    fn new(root: &'a Root, paths: &[Vec<u8>], options: ListOptions) -> Asked<'a> {
        let mut expander = Expander::new(root);
        let mut found = Vec::new();
        for path in paths {
            match expander.expand(path) {
                Ok(paths) => found.extend(paths.into_iter().map(Ok)),
                Err(cause) => found.push(Err(unseen(path.clone(), cause))),
            }
        }
        found.sort_by_key(|path| path.as_ref().is_ok_and(|path| is_directory(root, path)));
        Asked {
            root,
            paths: found.into_iter(),
            options,
            inside: None,
        }
    }

    fn top(&mut self, path: &[u8]) -> Result<Sight, Cause> {
        let parsed = RelativePath::parse(path)?;
        let mut seen = match self.root.open_directory(&parsed) {
            Ok(directory) => {
                let seen = directory_seen(&directory)?;
                let walker = Walker::new(Some(directory), None)
                    .listing_closed()
                    .flat(!self.options.recursive);
                self.inside = Some((walker, 0));
                seen
            }
            // A file or a link.
            Err(Cause::NotADirectory | Cause::OutsideRoot | Cause::NotFound)
                if !parsed.must_be_directory() =>
            {
                let (parent, name) = self.root.open_parent(&parsed)?.ok_or(Cause::NotFound)?;
                let seen = see(&parent, name, (&Links::Kept, Vec::new), Attributes::NONE)?;
                if seen.kind == EntryKind::Directory {
                    return Err(Cause::ChangedSinceListed);
                }
                seen
            }
            Err(cause) => return Err(cause),
        };
        seen.name = path.to_vec();
        Ok(Sight::Entry(seen))
    }
}

impl Listing for Asked<'_> {
    fn next(&mut self) -> Result<Sight, Error> {
        while let Some((walker, depth)) = &mut self.inside {
            let sight = walker.next()?;
            let hidden = sight.name().is_some_and(|name| name.starts_with(b"."));
            if hidden && !self.options.hidden {
                if sight.is_directory() {
                    walker.prune();
                    walker.next()?;
                }
                continue;
            }
            match &sight {
                Sight::Leave if *depth == 0 => self.inside = None,
                Sight::Leave => *depth -= 1,
                sight if sight.is_directory() => *depth += 1,
                _ => {}
            }
            return Ok(sight);
        }
        Ok(match self.paths.next() {
            None => Sight::Leave,
            Some(Err(unseen)) => unseen,
            Some(Ok(path)) => match self.top(&path) {
                Ok(sight) => sight,
                Err(cause) => unseen(path, cause),
            },
        })
    }

    fn digest(&mut self, _: &Seen) -> Result<Digest, Cause> {
        Err(Cause::ChangedSinceListed)
    }
}

impl Session<'_> {
    /// Sends a listing.
    pub(super) fn list(
        &self,
        connection: &mut Connection,
        paths: &[Vec<u8>],
        options: ListOptions,
    ) -> Result<(), Error> {
        let root = self.root_for(connection, paths)?;
        for path in paths {
            if let Err(cause) = RelativePath::parse(path).and_then(|it| root.check(&it)) {
                return self.refuse_path(connection, path, cause);
            }
        }
        let asked = Asked::new(root, paths, options);
        self.begin(connection)?;
        self.pump(
            connection,
            Vec::new(),
            (DATA, CONTROL),
            &self.stop,
            |port| pages::send(port, asked, &self.stop),
        )
    }
}

fn unseen(name: Vec<u8>, cause: Cause) -> Sight {
    Sight::Unseen { name, cause }
}

fn is_directory(root: &Root, path: &[u8]) -> bool {
    let parsed = RelativePath::parse(path);
    let directory = parsed.and_then(|path| match root.open_parent(&path)? {
        Some((parent, name)) => Ok(match kind_of(&stat_at(parent, name)?) {
            EntryKind::Link => root.is_of_login() && root.open_directory(&path).is_ok(),
            kind => kind == EntryKind::Directory,
        }),
        None => Ok(true),
    });
    directory == Ok(true)
}

fn directory_seen(directory: &OwnedFd) -> Result<Seen, Cause> {
    let stat = fstat(directory)?;
    Ok(Seen {
        name: Vec::new(),
        kind: EntryKind::Directory,
        size: stat.st_size as u64,
        meta: meta_of(&stat),
        inode: stat.st_ino,
        device: None,
        detail: Detail::None,
        extended: None,
    })
}
