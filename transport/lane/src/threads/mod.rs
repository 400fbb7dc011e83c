//! Hands work and state from one thread to another, and tells processes apart.

mod mailbox;
pub(crate) mod process;
mod scheduler;
mod spawn;
mod submissions;

pub(crate) use mailbox::Mailbox;
pub use process::Process;
pub use scheduler::Scheduler;
pub use spawn::spawn_thread;
pub use submissions::Submissions;
