//! Tests that regions can be cut, joined and shared without two owners of one byte.
#![allow(non_snake_case)]
use super::*;
use crate::memory::Memory;
use crate::memory::posted::Postable;
use std::sync::atomic::{AtomicBool, Ordering};

fn counting(len: usize) -> Region {
    Region::from_vec((0..len).map(|index| index as u8).collect())
}

#[test]
fn unsplit__joins_only_what_was_cut_there() {
    let mut head = counting(30);
    let mut middle = head.split_off(10);
    let tail = middle.split_off(10);
    let tail = head.unsplit(tail).expect_err("the middle is missing");
    let refused = middle.unsplit(counting(10)).expect_err("other memory");
    assert_eq!(refused[..], (0..10).collect::<Vec<u8>>());
    let head = tail_first(head, middle, tail);
    assert_eq!(head[..], (0..30).collect::<Vec<u8>>());
}

/// Joins from the back, and writes through each part meanwhile.
fn tail_first(mut head: Region, mut middle: Region, tail: Region) -> Region {
    middle.unsplit(tail).expect("it follows");
    assert_eq!(middle.len(), 20);
    head.unsplit(middle).expect("it follows");
    head
}

#[test]
fn split_off__parts_are_written_independently_and_outlive_each_other() {
    let mut head = Region::anonymous(8192).expect("memory");
    let mut tail = head.split_off(5000);
    head.fill(1);
    tail.fill(2);
    assert!(head.iter().all(|&byte| byte == 1));
    drop(head);
    assert!(tail.iter().all(|&byte| byte == 2));
    assert!(tail.split_off(tail.len()).is_empty());
}

#[test]
fn anonymous__is_zero_and_huge_regions_start_on_a_huge_page() {
    assert!(Region::anonymous(0).expect("nothing").is_empty());
    assert!(
        Region::anonymous(5)
            .expect("memory")
            .iter()
            .all(|&byte| byte == 0)
    );
    for len in [1 << 20, HUGE_PAGE + 1] {
        let region = Region::anonymous(len).expect("memory");
        assert_eq!(region.len(), len);
        assert_eq!(region.as_ptr() as usize % HUGE_PAGE, 0);
        assert_eq!(region[len - 1], 0, "the last byte is ours");
        let advised = advised_huge(region.as_ptr() as usize);
        assert!(advised >= HUGE_PAGE, "{advised} bytes of {len}");
    }
    assert!(Region::anonymous(usize::MAX).is_err());
}

#[test]
fn memfd__of_no_bytes_is_refused() {
    let error = Region::memfd(0).expect_err("no bytes");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    // The system's own words, of a mapping without bytes, would be "Invalid argument".
    let words = "memory that peers can map needs at least 1 byte";
    assert_eq!(error.to_string(), words);
    assert_eq!(Region::memfd(1).expect("memory").len(), 1);
}

/// Bytes from `start` on that are advised to be in huge pages. If the kernel has none, more than any region.
fn advised_huge(start: usize) -> usize {
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        return usize::MAX;
    }
    let mappings = std::fs::read_to_string("/proc/self/smaps").expect("procfs");
    let mut range = 0..0;
    for line in mappings.lines() {
        let bounds = line.split_once(' ').and_then(|(it, _)| it.split_once('-'));
        let hex = |it| usize::from_str_radix(it, 16).ok();
        if let Some((Some(from), Some(to))) = bounds.map(|(from, to)| (hex(from), hex(to))) {
            range = from..to;
        }
        let flags = line.strip_prefix("VmFlags:").unwrap_or_default();
        if range.contains(&start) && flags.split(' ').any(|it| it == "hg") {
            return range.end - start;
        }
    }
    0
}

#[test]
fn slice__names_its_bytes_and_keeps_them() {
    let shared = counting(100).share();
    let part = shared.slice(40, 20).slice(5, 3);
    drop(shared);
    assert_eq!(part[..], [45, 46, 47]);
}

#[test]
#[should_panic(expected = "slice within the region")]
fn slice__beyond_the_end_panics() {
    let part = counting(100).share().slice(50, 10);
    let _ = part.slice(5, 6);
}

/// Reports when it is dropped.
struct Kept(
    #[allow(dead_code, reason = "held, not read")] Box<[u8]>,
    Arc<AtomicBool>,
);

impl Drop for Kept {
    fn drop(&mut self) {
        self.1.store(true, Ordering::SeqCst);
    }
}

#[test]
fn foreign__keeps_its_owner_until_the_last_part_goes() {
    let gone = Arc::new(AtomicBool::new(false));
    let mut bytes: Box<[u8]> = (0..30).collect();
    let start = NonNull::from(&mut bytes[..]).cast();
    let owner = Box::new(Kept(bytes, Arc::clone(&gone)));
    // SAFETY: the box's bytes stay in place while it lives, and only the region names them.
    let mut head = unsafe { Region::foreign(start, 30, false, owner) };
    let mut tail = head.split_off(10);
    tail[0] = 77;
    drop(head);
    assert!(!gone.load(Ordering::SeqCst), "a part is left");
    assert!(tail.owner().is_some_and(|it| it.is::<Kept>()));
    let memory = Memory::from(tail.share());
    assert!(memory.owner().is_some_and(|it| it.is::<Kept>()));
    assert_eq!(memory.as_slice().map(|it| &it[..2]), Some(&[77, 11][..]));
    assert!(!memory.is_file());
    drop(memory);
    assert!(gone.load(Ordering::SeqCst), "nothing is left");
    assert!(counting(1).owner().is_none());
}

#[test]
fn try_unique__when_no_clone_and_no_slice_lives() {
    let mut head = counting(100);
    let tail = head.split_off(60);
    let shared = head.share();
    let (other, part) = (shared.clone(), shared.slice(10, 20));
    let shared = shared.try_unique().expect_err("a clone and a slice live");
    drop(other);
    let shared = shared.try_unique().expect_err("a slice lives");
    assert_eq!(shared[..3], [0, 1, 2]);
    drop(part);
    // The tail is not part of the shared memory.
    let mut head = shared.try_unique().expect("the only one");
    head[0] = 77;
    head.unsplit(tail).expect("it follows");
    assert_eq!((head.len(), head[0], head[99]), (100, 77, 99));
}

#[test]
fn try_unique__of_the_last_slice_gives_its_own_bytes() {
    let mut region = counting(100);
    let tail = region.split_off(70).share();
    let part = tail.slice(5, 20).slice(1, 3);
    drop(tail);
    let mut part = part.try_unique().expect("the last one");
    assert_eq!(part[..], [76, 77, 78]);
    part.fill(1);
    // The bytes around it are freed, so it has no neighbours any more.
    let part = region.unsplit(part).expect_err("there is a gap");
    assert_eq!(part[..], [1, 1, 1]);
    let memory = Memory::from(region.share());
    assert_eq!(memory.into_region().map(|it| it.len()), Some(70));
}

#[test]
fn try_unique__in_two_threads_gives_it_to_one_at_most() {
    for _ in 0..200 {
        let first = counting(8).share();
        let second = first.clone();
        let other = std::thread::spawn(|| second.try_unique().is_ok());
        let here = first.try_unique().is_ok();
        assert!(!(other.join().expect("no panic") && here));
    }
}

#[test]
fn gathered__has_a_length_and_no_slice() {
    let (head, tail) = (counting(10), counting(20).share());
    let memory = Memory::from(vec![head.into(), vec![tail.into()].into()]);
    assert_eq!((memory.len(), memory.is_empty()), (30, false));
    assert_eq!(memory.pieces().len(), 2, "nested ones are flat");
    assert!(memory.alone().is_none() && !memory.is_file());
    assert_eq!(memory.as_slice(), None);
    assert!(memory.into_region().is_none());
    assert!(Memory::from(vec![]).is_empty());
}

/// Otherwise two processes would have it exclusively.
#[test]
fn memfd__a_child_of_fork_does_not_have_it() {
    const LEN: usize = 8192;
    let mut region = Region::memfd(LEN).expect("memory");
    region.fill(7);
    let start = region.as_mut_ptr();
    let mut region = std::mem::ManuallyDrop::new(region);
    // SAFETY: the child takes no lock that another thread of this program may hold, except the allocator's, which
    // survives a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: nothing is mapped there; dropped once, in this process; the child exits here, or by the signal if it
        // hangs.
        unsafe {
            libc::alarm(20);
            let other = libc::mmap(start.cast(), LEN, protection, flags, -1, 0).cast::<u8>();
            std::mem::ManuallyDrop::drop(&mut region);
            // A new mapping at the address is not unmapped with the region.
            let is_free = other == start && {
                other.write_volatile(9);
                other.read_volatile() == 9
            };
            libc::_exit(i32::from(!is_free));
        }
    }
    assert!(child > 0, "forked");
    let mut status = 0;
    // SAFETY: a status that lives across the call.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0));
    let region = std::mem::ManuallyDrop::into_inner(region);
    assert!(region.iter().all(|&byte| byte == 7));
}
