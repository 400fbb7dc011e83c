//! What is sent, so that every byte of it can be checked.
//!
//! | module | what it holds |
//! |---|---|
//! | `pattern` | buffers that are sent over and over |
//! | `message` | messages, each with a number |

pub(crate) mod message;
pub(crate) mod pattern;
