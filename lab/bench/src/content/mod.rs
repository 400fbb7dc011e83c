//! Generates content of which every byte can be checked.
//!
//! | module | what it holds |
//! |---|---|
//! | `pattern` | buffers that are sent over and over |
//! | `message` | messages, each with a number |
//! | `stage` | the work on the pieces of a buffer |

pub(crate) mod message;
pub(crate) mod pattern;
pub(crate) mod stage;
