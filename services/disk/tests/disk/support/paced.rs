//! Records whether a target sends data while its store still has more to read.

use std::sync::{Arc, Condvar, Mutex};

use super::Served;
use super::gated::LONG;
use super::hooked::{self, Hooked, Hooks};

#[derive(Debug, Default)]
struct Course {
    reads: usize,
    submitted: bool,
    ended: usize,
    /// A read waited in vain.
    stalled: bool,
}

/// A store of which the first read waits until the initiator has submitted all of its reads, and each other until it has the
/// data of all but the last few before.
#[derive(Debug, Default)]
pub struct Paced {
    /// Those few.
    unanswered: usize,
    course: Mutex<Course>,
    news: Condvar,
}

impl Paced {
    /// One of so many bytes, and a target that has it alone. `unanswered` reads may be done before their data is sent.
    pub fn served(bytes: u64, unanswered: usize) -> (Arc<Hooked<Paced>>, Served) {
        let paced = Paced {
            unanswered,
            ..Paced::default()
        };
        hooked::served(bytes, paced)
    }

    fn change(&self, change: impl FnOnce(&mut Course)) {
        change(&mut self.course.lock().unwrap());
        self.news.notify_all();
    }

    /// The initiator has submitted all of its reads.
    pub fn all_submitted(&self) {
        self.change(|it| it.submitted = true);
    }

    /// It has the data of one.
    pub fn one_ended(&self) {
        self.change(|it| it.ended += 1);
    }

    /// Waits until so many reads have ended; whether one waited in vain.
    pub fn stalled(&self, reads: usize) -> bool {
        self.wait(|it| it.ended == reads)
    }

    fn wait(&self, is_so: impl Fn(&Course) -> bool) -> bool {
        let course = self.course.lock().unwrap();
        let waited = self
            .news
            .wait_timeout_while(course, LONG, |it| !it.stalled && !is_so(it));
        let (mut course, timeout) = waited.unwrap();
        course.stalled |= timeout.timed_out();
        course.stalled
    }
}

impl Hooks for Paced {
    fn before_read_at_once(&self) -> bool {
        let before = {
            let mut course = self.course.lock().unwrap();
            course.reads += 1;
            course.reads - 1
        };
        self.wait(|it| it.submitted && it.ended + self.unanswered > before);
        true
    }
}
