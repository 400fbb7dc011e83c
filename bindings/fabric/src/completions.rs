//! Defines what a completion queue holds, and writes it in the format that the program chose.

use crate::errno::Cause;
use crate::libfabric::*;
use std::ffi::c_void;

/// A completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) context: usize,
    pub(crate) flags: u64,
    pub(crate) length: usize,
    pub(crate) buffer: usize,
    pub(crate) data: u64,
}

/// A completion, or the failure of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Completed {
    Done(Entry),
    Failed { entry: Entry, cause: Cause },
}

/// A format of completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Context,
    Message,
    Data,
    Tagged,
}

impl Format {
    pub(crate) fn of(format: fi_cq_format) -> Option<Format> {
        match format {
            FI_CQ_FORMAT_UNSPEC | FI_CQ_FORMAT_CONTEXT => Some(Format::Context),
            FI_CQ_FORMAT_MSG => Some(Format::Message),
            FI_CQ_FORMAT_DATA => Some(Format::Data),
            FI_CQ_FORMAT_TAGGED => Some(Format::Tagged),
            _ => None,
        }
    }

    /// Writes an entry as the `index`-th of an array.
    ///
    /// # Safety
    /// `into` has room for `index + 1` entries of this format.
    pub(crate) unsafe fn write(self, into: *mut c_void, index: usize, it: &Entry) {
        let op_context = it.context as *mut c_void;
        let (flags, len) = (it.flags, it.length);
        let (buf, data) = (it.buffer as *mut c_void, it.data);
        // SAFETY: the caller's promise. An array of the program may be misaligned for Rust.
        unsafe {
            match self {
                Format::Context => into
                    .cast::<fi_cq_entry>()
                    .add(index)
                    .write_unaligned(fi_cq_entry { op_context }),
                Format::Message => {
                    into.cast::<fi_cq_msg_entry>()
                        .add(index)
                        .write_unaligned(fi_cq_msg_entry {
                            op_context,
                            flags,
                            len,
                        })
                }
                Format::Data => {
                    into.cast::<fi_cq_data_entry>()
                        .add(index)
                        .write_unaligned(fi_cq_data_entry {
                            op_context,
                            flags,
                            len,
                            buf,
                            data,
                        })
                }
                Format::Tagged => into
                    .cast::<fi_cq_tagged_entry>()
                    .add(index)
                    .write_unaligned(fi_cq_tagged_entry {
                        op_context,
                        flags,
                        len,
                        buf,
                        data,
                        tag: 0,
                    }),
            }
        }
    }
}

/// Writes a failure. The fields that a later libfabric added behind are not touched.
///
/// # Safety
/// `into` is a whole `fi_cq_err_entry`.
pub(crate) unsafe fn write_failure(into: *mut fi_cq_err_entry, it: &Entry, cause: Cause) {
    // SAFETY: the caller's promise. `err_data` may be a buffer of the program, and stays.
    unsafe {
        (*into).op_context = it.context as *mut c_void;
        (*into).flags = it.flags;
        (*into).len = it.length;
        (*into).buf = it.buffer as *mut c_void;
        (*into).data = it.data;
        (*into).tag = 0;
        (*into).olen = 0;
        (*into).err = cause.err.0 as i32;
        (*into).prov_errno = cause.detail;
        (*into).err_data_size = 0;
    }
}
