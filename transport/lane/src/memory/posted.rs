//! Defines the memory that requests are posted with.

use crate::memory::file_region::FileRegion;
use crate::memory::region::{Region, SharedRegion};
use std::any::Any;

/// Memory that can be posted.
///
/// ```
/// use zerolane_lane::{Memory, Region};
/// let (head, body) = (Region::from_vec(vec![1; 40]), Region::anonymous(1 << 20)?.share());
/// let both: Memory = vec![head.into(), body.into()].into();
/// assert_eq!(both.len(), (1 << 20) + 40);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub enum Memory {
    /// To be sent or received into.
    Exclusive(Region),
    /// To be sent.
    Shared(SharedRegion),
    /// To be sent or received into.
    File(FileRegion),
    /// To be sent as one piece, in this order.
    Gathered(Vec<Memory>),
}

/// The memory of a request, in the type in which a refusal returns it to the caller.
pub trait Postable: Into<Memory> {
    /// Start and length if it is one piece, without a borrow of the bytes.
    fn alone(&self) -> Option<(*mut u8, usize)>;

    /// Start and length of each piece, if there are several.
    fn pieces(&self) -> Vec<(*mut u8, usize)>;

    /// Whether any part of it is a mapped file, whose pages may be gone.
    fn is_file(&self) -> bool;
}

impl Postable for Region {
    fn alone(&self) -> Option<(*mut u8, usize)> {
        Some(self.raw())
    }

    fn pieces(&self) -> Vec<(*mut u8, usize)> {
        vec![self.raw()]
    }

    fn is_file(&self) -> bool {
        Region::is_file(self)
    }
}

impl Postable for FileRegion {
    fn alone(&self) -> Option<(*mut u8, usize)> {
        Some(self.region().raw())
    }

    fn pieces(&self) -> Vec<(*mut u8, usize)> {
        vec![self.region().raw()]
    }

    fn is_file(&self) -> bool {
        true
    }
}

impl Postable for Memory {
    fn alone(&self) -> Option<(*mut u8, usize)> {
        match self {
            Memory::Exclusive(region) => Some(region.raw()),
            Memory::Shared(region) => Some(region.raw()),
            Memory::File(region) => region.alone(),
            Memory::Gathered(_) => None,
        }
    }

    fn pieces(&self) -> Vec<(*mut u8, usize)> {
        match self {
            Memory::Gathered(pieces) => pieces.iter().flat_map(Memory::pieces).collect(),
            one => one.alone().into_iter().collect(),
        }
    }

    fn is_file(&self) -> bool {
        match self {
            Memory::Exclusive(region) => region.is_file(),
            Memory::Shared(region) => region.is_file(),
            Memory::File(_) => true,
            Memory::Gathered(pieces) => pieces.iter().any(Memory::is_file),
        }
    }
}

impl Memory {
    /// Its pieces, unless a part of it is a mapped file, whose pages may be gone.
    pub(crate) fn parts(&self) -> Option<Vec<&[u8]>> {
        match self {
            it if Postable::is_file(it) => None,
            Memory::Gathered(pieces) => {
                let parts: Option<Vec<_>> = pieces.iter().map(Memory::parts).collect();
                parts.map(|it| it.concat())
            }
            one => one.as_slice().map(|it| vec![it]),
        }
    }

    /// Length of all pieces, in bytes: `usize::MAX` if the sum is more, because one region may be several of the
    /// pieces.
    pub fn len(&self) -> usize {
        match self {
            Memory::Exclusive(region) => region.raw().1,
            Memory::Shared(region) => region.raw().1,
            Memory::File(region) => region.len(),
            Memory::Gathered(pieces) => pieces
                .iter()
                .fold(0, |sum, piece| sum.saturating_add(piece.len())),
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its bytes. `None` if it is several pieces, each of which may have a slice, or a mapped file, whose pages may be
    /// gone ([`FileRegion::read`]).
    pub fn as_slice(&self) -> Option<&[u8]> {
        match self {
            Memory::Exclusive(region) => Some(region),
            Memory::Shared(region) => Some(region),
            Memory::File(_) | Memory::Gathered(_) => None,
        }
    }

    /// The exclusively owned region, also if it was shared and no other handle is left. `None` if there is another
    /// handle ([`SharedRegion::try_unique`]), or if it is a mapped file or several pieces.
    pub fn into_region(self) -> Option<Region> {
        match self {
            Memory::Exclusive(region) => Some(region),
            Memory::Shared(region) => region.try_unique().ok(),
            Memory::File(_) | Memory::Gathered(_) => None,
        }
    }

    /// The mapped file; `None` for other memory.
    pub fn into_file(self) -> Option<FileRegion> {
        match self {
            Memory::File(region) => Some(region),
            Memory::Exclusive(_) | Memory::Shared(_) | Memory::Gathered(_) => None,
        }
    }

    /// The owner of a [`Region::foreign`]; `None` for other memory.
    pub fn owner(&self) -> Option<&(dyn Any + Send + Sync)> {
        match self {
            Memory::Exclusive(region) => region.owner(),
            Memory::Shared(region) => region.owner(),
            Memory::File(_) | Memory::Gathered(_) => None,
        }
    }
}

impl From<Region> for Memory {
    fn from(region: Region) -> Memory {
        Memory::Exclusive(region)
    }
}

impl From<SharedRegion> for Memory {
    fn from(region: SharedRegion) -> Memory {
        Memory::Shared(region)
    }
}

impl From<Vec<Memory>> for Memory {
    fn from(pieces: Vec<Memory>) -> Memory {
        Memory::Gathered(pieces)
    }
}

impl From<FileRegion> for Memory {
    fn from(region: FileRegion) -> Memory {
        Memory::File(region)
    }
}

/// Memory that a request may write: a [`Region`] or a [`FileRegion`].
pub trait Writable: Postable + Send + 'static {
    /// Length in bytes.
    fn length(&self) -> usize;

    /// Its bytes, if they are this program's alone and in place.
    fn own_bytes(&mut self) -> Option<&mut [u8]>;
}

impl Writable for Region {
    fn length(&self) -> usize {
        self.len()
    }

    fn own_bytes(&mut self) -> Option<&mut [u8]> {
        match self.is_file() {
            true => None,
            false => Some(self),
        }
    }
}

impl Writable for FileRegion {
    fn length(&self) -> usize {
        self.len()
    }

    fn own_bytes(&mut self) -> Option<&mut [u8]> {
        None
    }
}
