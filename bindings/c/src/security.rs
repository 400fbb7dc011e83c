//! The identity of an end, and the peers it speaks to.

use crate::address;
use crate::connection::{with, zl_connection};
use crate::endpoint::zl_endpoint;
use crate::options::{change, zl_options};
use crate::pointer::{handle, text};
use crate::status::{Failure, guard, zl_status};
use std::ffi::c_char;
use std::path::Path;
use std::sync::Arc;
use zerolane::keys::identity;
use zerolane::security::{KeyError, PublicKey};

/// Bytes that hold any public key as a text ("zl:" and 43 characters), with the zero at its end.
pub const ZL_PUBLIC_KEY_LENGTH: usize = 47;

fn bad_key(error: KeyError) -> Failure {
    Failure::argument(error.to_string())
}

/// Gives this end the key in `file` as its identity. The file is as `zerolane keygen` makes it, and is made
/// if there is none. Others must not be able to read it. Without this call, each connection and endpoint
/// has a key of its own.
/// Writes the public half to `buffer`, if that is not null, as a text and a zero:
/// ZL_PUBLIC_KEY_LENGTH bytes are enough.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_options_identity(
    options: *mut zl_options,
    file: *const c_char,
    buffer: *mut c_char,
    capacity: usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and texts.
        let (options, file) = unsafe { (handle(options, "options")?, text(file, "file")?) };
        let identity = identity::load_or_create(Path::new(file))
            .map_err(|error| Failure::new(zl_status::ZL_ERROR_SYSTEM, error.to_string()))?;
        if !buffer.is_null() {
            // SAFETY: C's promise about memory.
            unsafe { address::write(identity.public(), buffer, capacity) }?;
        }
        change(options, |settings| {
            settings.options.security.identity = Some(Arc::new(identity));
            Ok(())
        })
    })
}

/// Speaks only to peers that prove to own `key` (a text, as `zerolane id` shows it), or another key
/// given in an earlier call. Without a call, to any peer: no third party can listen in, but the
/// peer's identity is not known.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_options_trust(
    options: *mut zl_options,
    key: *const c_char,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and texts.
        let (options, key) = unsafe { (handle(options, "options")?, text(key, "key")?) };
        let key: PublicKey = key.parse().map_err(bad_key)?;
        change(options, |settings| {
            settings.trusted.insert(key);
            settings.options.security.trust = Arc::new(settings.trusted.clone());
            Ok(())
        })
    })
}

/// Writes the key that the peer proved to own to `buffer`, as a text and a zero; an empty text if
/// the connection is plain. ZL_PUBLIC_KEY_LENGTH bytes are enough.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_peer_key(
    connection: *const zl_connection,
    buffer: *mut c_char,
    capacity: usize,
) -> zl_status {
    // SAFETY: C's promises about handles and memory.
    unsafe {
        with(connection, |connection| {
            write(connection.peer_key(), buffer, capacity)?;
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Writes the key by which clients know this end to `buffer`, as a text and a zero; an
/// empty text if connections are plain. ZL_PUBLIC_KEY_LENGTH bytes are enough.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_endpoint_public_key(
    endpoint: *const zl_endpoint,
    buffer: *mut c_char,
    capacity: usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let endpoint = unsafe { handle(endpoint, "endpoint") }?;
        let key = endpoint.0.enter()?.public_key();
        // SAFETY: C's promise about memory.
        unsafe { write(key, buffer, capacity) }?;
        Ok(zl_status::ZL_OK)
    })
}

/// # Safety
/// As [`address::write`].
pub(crate) unsafe fn write(
    key: Option<PublicKey>,
    buffer: *mut c_char,
    capacity: usize,
) -> Result<(), Failure> {
    let text = key.map_or_else(String::new, |key| key.to_string());
    // SAFETY: the caller's promise.
    unsafe { address::write(text, buffer, capacity) }
}
