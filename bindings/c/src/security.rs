//! Sets the identity of this end and the keys that it trusts.

use crate::address;
use crate::connection::{Driver, zl_connection};
use crate::options::{change, zl_options};
use crate::pointer::{handle, text};
use crate::status::{Failure, guard, zl_status};
use std::ffi::c_char;
use std::path::Path;
use std::sync::Arc;
use zerolane::keys::identity;
use zerolane::security::{KeyError, PublicKey};

/// Bytes that hold any public key as text ("zl:" and 43 characters), with its terminating zero.
pub const ZL_PUBLIC_KEY_LENGTH: usize = 47;

fn bad_key(error: KeyError) -> Failure {
    Failure::argument(error.to_string())
}

/// Uses the key in `file` as this end's identity; zerolane keygen makes such files. Creates
/// the file if it does not exist. Other users must not be able to read it. Without this call,
/// each connection and endpoint makes a fresh key. Writes the public key to `buffer`, if not
/// null, as text and a zero: at most ZL_PUBLIC_KEY_LENGTH bytes.
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

/// Accepts only peers that prove they own `key` (a text, as printed by zerolane id), or another
/// key of an earlier call. Without a call, any peer is accepted: no third party can listen in,
/// but the peer's identity is unknown.
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

/// Writes the key that the peer proved it owns to `buffer`, as text and a zero: at most
/// ZL_PUBLIC_KEY_LENGTH bytes. The text is empty if the connection is plain.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_peer_key(
    connection: *const zl_connection,
    buffer: *mut c_char,
    capacity: usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let connection = unsafe { handle(connection, "connection") }?;
        let key = match connection.driver() {
            // Also when the connection is over.
            Driver::ByThread(connection) => connection.handle.peer_key(),
            _ => connection.ask(|it| Ok(it.peer_key()))?,
        };
        // SAFETY: C's promise about memory.
        unsafe { write(key, buffer, capacity) }?;
        Ok(zl_status::ZL_OK)
    })
}

/// # Safety
/// As for [`address::write`].
pub(crate) unsafe fn write(
    key: Option<PublicKey>,
    buffer: *mut c_char,
    capacity: usize,
) -> Result<(), Failure> {
    let text = key.map_or_else(String::new, |key| key.to_string());
    // SAFETY: the caller's promise.
    unsafe { address::write(text, buffer, capacity) }
}
