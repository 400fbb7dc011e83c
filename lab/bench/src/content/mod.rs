//! Generates content of which every byte can be checked.
//!
//! | module | what it holds |
//! |---|---|
//! | `pattern` | buffers that are sent over and over |
//! | `message` | messages, each with a number |
//! | `stage` | the work on the pieces of a buffer |
//! | `source_sink` | the same between a source and a sink |

pub(crate) mod message;
pub(crate) mod pattern;
pub(crate) mod source_sink;
pub(crate) mod stage;
