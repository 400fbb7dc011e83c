//! What is sent, so that every byte of it can be checked.
//!
//! | module | what it holds |
//! |---|---|
//! | `pattern` | buffers that are sent over and over |
//! | `message` | messages, each with a number |
//! | `stage` | what is done with the pieces of a buffer |
//! | `source_sink` | the same between a source and a sink |

pub(crate) mod message;
pub(crate) mod pattern;
pub(crate) mod source_sink;
pub(crate) mod stage;
