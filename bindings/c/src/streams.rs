//! Opens, accepts, reads and writes the byte streams of a connection.

use crate::connection::{take, zl_connection};
use crate::pointer::{Output, bytes, bytes_mut, free, give, handle, slice, text, timeout};
use crate::set::zl_set;
use crate::status::{Failure, guard, of_error, zl_status};
use std::ffi::{c_char, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::task::{Context, Poll};
use zerolane_streams::engine::OpenError;
use zerolane_streams::session;
use zerolane_streams::{Ready, Role, Stream, StreamError, Streams, wait};

/// The streams of a connection: each carries bytes in both directions, with a flow control of its
/// own, so that one that is not read holds up no other. Up to 4096 that each end opened.
pub struct zl_streams(Streams);

/// One stream. Its functions may be called by any thread at any time: each byte goes to one reader,
/// and the bytes of one write may follow those of another.
pub struct zl_stream(Stream);

/// Which end of a connection this is. One end must be the one, the other end the other.
#[repr(u32)]
#[derive(Clone, Copy)]
pub enum zl_role {
    /// It connected.
    ZL_ROLE_CONNECTOR = 1,
    /// It accepted.
    ZL_ROLE_ACCEPTOR = 2,
}

/// What a stream may be ready for (zl_stream_watch).
#[repr(u32)]
#[derive(Clone, Copy)]
pub enum zl_ready {
    /// zl_stream_read returns at once.
    ZL_READY_READ = 1,
    /// zl_stream_write returns at once.
    ZL_READY_WRITE = 2,
    /// The peer's program accepted the stream, or it ended.
    ZL_READY_ACCEPTED = 3,
}

/// Bytes of the program, laid out as struct iovec.
#[repr(C)]
pub struct zl_bytes {
    /// The first byte; may be null if `length` is 0.
    pub base: *mut c_void,
    /// Length in bytes.
    pub length: usize,
}

/// The priority of a stream whose opener has no wish: of 0, whose bytes go first, to 7.
pub const ZL_PRIORITY: u8 = 3;

/// Makes an end of a connection that carries streams; the other end does the same. Takes the
/// connection over, which must be one that the program drives (zl_connect, zl_endpoint_accept), and
/// frees its handle, also on failure, unless that is ZL_ERROR_ARGUMENT. A thread of the library
/// drives it. `role` is a value of enum zl_role. End it with zl_streams_close and zl_streams_free.
///
/// Threads: the last that uses `connection`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_streams_new(
    connection: *mut zl_connection,
    role: u32,
    streams: *mut *mut zl_streams,
) -> zl_status {
    const CONNECTOR: u32 = zl_role::ZL_ROLE_CONNECTOR as u32;
    const ACCEPTOR: u32 = zl_role::ZL_ROLE_ACCEPTOR as u32;
    guard(|| {
        let role = match role {
            CONNECTOR => Role::Connector,
            ACCEPTOR => Role::Acceptor,
            _ => return Err(Failure::argument(format!("unknown role {role}"))),
        };
        // SAFETY: C's promises about outputs and handles.
        let (output, connection) = unsafe { (Output::new(streams, "streams")?, take(connection)?) };
        output.set(give(zl_streams(Streams::new(connection, role)?)));
        Ok(zl_status::ZL_OK)
    })
}

/// Opens a stream, which can be written at once. `purpose`, at most 1024 bytes, tells the peer what
/// it is for: zl_stream_purpose. `priority` is 0, whose bytes go first, to 7, or ZL_PRIORITY.
/// ZL_ERROR_TOO_MANY if this end has 4096. Free the stream with zl_stream_free.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_streams_open(
    streams: *const zl_streams,
    purpose: *const u8,
    length: usize,
    priority: u8,
    stream: *mut *mut zl_stream,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles, memory and outputs.
        let (streams, purpose, output) = unsafe {
            (
                handle(streams, "streams")?,
                bytes(purpose, length, "purpose")?,
                Output::new(stream, "stream")?,
            )
        };
        if usize::from(priority) >= zerolane_streams::limits::PRIORITIES {
            return Err(Failure::argument(format!("priority {priority}: 0 to 7")));
        }
        let opened = streams.0.open_with_priority(purpose, priority);
        output.set(give(zl_stream(opened.map_err(failure)?)));
        Ok(zl_status::ZL_OK)
    })
}

/// Waits `timeout_ms` milliseconds (negative: no limit) for a stream that the peer opens, and
/// accepts it; 0 takes one that waits already; ZL_TIMEOUT if none came. ZL_ERROR_CLOSED when the
/// peer or this end has disconnected. Free the stream with zl_stream_free.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_streams_accept(
    streams: *const zl_streams,
    timeout_ms: i64,
    stream: *mut *mut zl_stream,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (streams, output) =
            unsafe { (handle(streams, "streams")?, Output::new(stream, "stream")?) };
        within(
            timeout_ms,
            |cx| streams.0.poll_accept(cx),
            |accepted| {
                let accepted = accepted.ok_or_else(|| StreamError::Disconnected.into());
                output.set(give(zl_stream(accepted.map_err(failure)?)));
                Ok(())
            },
        )
    })
}

/// Makes `set` have `token`, a number of your choice, once, when zl_streams_accept returns at once;
/// now if it does. Replaces the token given before.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_streams_watch(
    streams: *const zl_streams,
    set: *const zl_set,
    token: u64,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles.
        let (streams, set) = unsafe { (handle(streams, "streams")?, handle(set, "set")?) };
        streams.0.watch(set.inner(), token).map_err(failure)?;
        Ok(zl_status::ZL_OK)
    })
}

/// Delivers what was written to the peer's library, and disconnects; opens and accepts no more
/// streams. Waits up to `timeout_ms` milliseconds (negative: no limit): ZL_TIMEOUT if it was not
/// done. Call it again then, or free the streams. What a peer that disconnects first did not take is
/// lost.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_streams_close(
    streams: *const zl_streams,
    timeout_ms: i64,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let streams = unsafe { handle(streams, "streams") }?;
        within(timeout_ms, |cx| streams.0.poll_close(cx), Ok)
    })
}

/// Frees the streams' connection, and disconnects at once if it is open. Streams that are not freed
/// yet return errors. Null does nothing.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_streams_free(streams: *mut zl_streams) {
    guard(|| {
        // SAFETY: C's promise about handles.
        if let Ok(streams) = unsafe { handle(streams, "streams") } {
            streams.0.abort();
        }
        // SAFETY: as above.
        unsafe { free(streams) };
        Ok(zl_status::ZL_OK)
    });
}

/// Writes what the opener of the stream said of it to `buffer`, and its length to `length`.
/// ZL_ERROR_TOO_LARGE if it does not fit; 1024 bytes are enough.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_stream_purpose(
    stream: *const zl_stream,
    buffer: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles, memory and outputs.
        let (stream, buffer, output) = unsafe {
            (
                handle(stream, "stream")?,
                bytes_mut(buffer, capacity, "buffer")?,
                Output::new(length, "length")?,
            )
        };
        let purpose = stream.0.purpose();
        output.set(purpose.len());
        let Some(place) = buffer.get_mut(..purpose.len()) else {
            let why = format!("a purpose of {} bytes", purpose.len());
            return Err(Failure::new(zl_status::ZL_ERROR_TOO_LARGE, why));
        };
        place.write_copy_of_slice(purpose);
        Ok(zl_status::ZL_OK)
    })
}

/// Waits `timeout_ms` milliseconds (negative: no limit) until the peer's program accepts the
/// stream; ZL_TIMEOUT if it did not, ZL_ERROR_RESET if it refused. A stream can be written before.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_stream_accepted(
    stream: *const zl_stream,
    timeout_ms: i64,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let stream = unsafe { handle(stream, "stream") }?;
        within(timeout_ms, |cx| stream.0.poll_accepted(cx), Ok)
    })
}

/// Waits `timeout_ms` milliseconds (negative: no limit) for bytes, and reads those available, up to
/// `capacity` bytes; their number goes to `length`. 0 bytes are the end of the peer's direction.
/// ZL_TIMEOUT if nothing came, and nothing is lost. ZL_ERROR_RESET if an end has reset the stream.
/// ZL_ERROR_CLOSED if the peer disconnected without ending the stream, or this end closed it.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_stream_read(
    stream: *const zl_stream,
    timeout_ms: i64,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> zl_status {
    let one = zl_bytes {
        base: buffer,
        length: capacity,
    };
    // SAFETY: the same promises.
    unsafe { zl_stream_read_vectored(stream, timeout_ms, &raw const one, 1, length) }
}

/// Like zl_stream_read, into several buffers in order.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_stream_read_vectored(
    stream: *const zl_stream,
    timeout_ms: i64,
    buffers: *const zl_bytes,
    count: usize,
    length: *mut usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles, memory and outputs.
        let (stream, mut places, output) = unsafe {
            (
                handle(stream, "stream")?,
                places(buffers, count)?,
                Output::new(length, "length")?,
            )
        };
        let most = total(places.iter().map(|it| it.len()))?;
        let mut places = places.iter_mut().map(std::mem::take);
        let mut place: &mut [MaybeUninit<u8>] = &mut [];
        let mut read = |mut bytes: &[u8]| {
            while !bytes.is_empty() {
                let len = bytes.len().min(place.len());
                let (here, behind) = std::mem::take(&mut place).split_at_mut(len);
                here.write_copy_of_slice(&bytes[..len]);
                bytes = &bytes[len..];
                place = behind;
                if place.is_empty() {
                    let Some(next) = places.next() else { return };
                    place = next;
                }
            }
        };
        let poll = |cx: &mut Context<'_>| stream.0.poll_read_with(cx, most, &mut read);
        within(timeout_ms, poll, |len| {
            output.set(len);
            Ok(())
        })
    })
}

/// Waits `timeout_ms` milliseconds (negative: no limit) for room, and queues as many bytes as there
/// is room for, at least 1 of them if there are any; their number goes to `written`. The queue has
/// room for 256 KiB, and the peer's credit bounds it. ZL_TIMEOUT if there was no room.
/// ZL_ERROR_FINISHED after zl_stream_finish, ZL_ERROR_RESET if an end has reset the stream.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_stream_write(
    stream: *const zl_stream,
    timeout_ms: i64,
    data: *const c_void,
    length: usize,
    written: *mut usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles, memory and outputs.
        let (stream, data, output) = unsafe {
            (
                handle(stream, "stream")?,
                bytes(data.cast(), length, "data")?,
                Output::new(written, "written")?,
            )
        };
        write_from(stream, timeout_ms, &[io::IoSlice::new(data)], output)
    })
}

/// Like zl_stream_write, from several buffers in order.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_stream_write_vectored(
    stream: *const zl_stream,
    timeout_ms: i64,
    buffers: *const zl_bytes,
    count: usize,
    written: *mut usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles, memory and outputs.
        let (stream, sources, output) = unsafe {
            (
                handle(stream, "stream")?,
                sources(buffers, count)?,
                Output::new(written, "written")?,
            )
        };
        total(sources.iter().map(|it| it.len()))?;
        write_from(stream, timeout_ms, &sources, output)
    })
}

fn write_from(
    stream: &zl_stream,
    timeout_ms: i64,
    sources: &[io::IoSlice<'_>],
    written: Output<usize>,
) -> Result<zl_status, Failure> {
    let poll = |cx: &mut Context<'_>| stream.0.poll_write_from(cx, sources);
    within(timeout_ms, poll, |len| {
        written.set(len);
        Ok(())
    })
}

/// Ends the direction to the peer, as TCP's half-close does; what was written arrives before. The
/// other direction stays open.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_stream_finish(stream: *const zl_stream) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { handle(stream, "stream") }?
            .0
            .finish()
            .map_err(failure)?;
        Ok(zl_status::ZL_OK)
    })
}

/// Ends both directions at once: calls at both ends return ZL_ERROR_RESET, and zl_last_error has
/// `words`, up to 512 bytes of them.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_stream_reset(
    stream: *const zl_stream,
    words: *const c_char,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and texts.
        let (stream, words) = unsafe { (handle(stream, "stream")?, text(words, "words")?) };
        stream.0.reset(words).map_err(failure)?;
        Ok(zl_status::ZL_OK)
    })
}

/// Makes `set` have `token`, a number of your choice, once, when the stream is ready; now if it is.
/// `what` is a value of enum zl_ready. So one set, and its one descriptor (zl_set_fd), tells of any
/// number of streams. Replaces the token that was given for the same before. Another thread may be
/// faster: call with a timeout of 0, and watch again after ZL_TIMEOUT.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_stream_watch(
    stream: *const zl_stream,
    what: u32,
    set: *const zl_set,
    token: u64,
) -> zl_status {
    const READ: u32 = zl_ready::ZL_READY_READ as u32;
    const WRITE: u32 = zl_ready::ZL_READY_WRITE as u32;
    const ACCEPTED: u32 = zl_ready::ZL_READY_ACCEPTED as u32;
    guard(|| {
        // SAFETY: C's promises about handles.
        let (stream, set) = unsafe { (handle(stream, "stream")?, handle(set, "set")?) };
        let what = match what {
            READ => Ready::Read,
            WRITE => Ready::Write,
            ACCEPTED => Ready::Accepted,
            _ => return Err(Failure::argument(format!("{what} is no zl_ready"))),
        };
        stream.0.watch(what, set.inner(), token).map_err(failure)?;
        Ok(zl_status::ZL_OK)
    })
}

/// Ends the use of the stream: waits of other threads and later calls return ZL_ERROR_CLOSED. What
/// was written is delivered, then the end. If the peer writes more, or had written what was not
/// read, the stream is reset. Does nothing the second time.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_stream_close(stream: *const zl_stream) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { handle(stream, "stream") }?
            .0
            .close()
            .map_err(failure)?;
        Ok(zl_status::ZL_OK)
    })
}

/// Closes the stream and frees it. Null does nothing.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_stream_free(stream: *mut zl_stream) {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { free(stream) };
        Ok(zl_status::ZL_OK)
    });
}

/// Waits for `poll`, and hands its result to `then`; `ZL_TIMEOUT` if it is not ready in time.
fn within<T>(
    timeout_ms: i64,
    poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
    then: impl FnOnce(T) -> Result<(), Failure>,
) -> Result<zl_status, Failure> {
    let Some(ready) = wait(timeout(timeout_ms), poll) else {
        return Ok(zl_status::ZL_TIMEOUT);
    };
    then(ready.map_err(failure)?)?;
    Ok(zl_status::ZL_OK)
}

/// The buffers to read into.
///
/// # Safety
/// As for [`slice`], and as for [`bytes_mut`] for each buffer.
unsafe fn places<'a>(
    buffers: *const zl_bytes,
    count: usize,
) -> Result<Vec<&'a mut [MaybeUninit<u8>]>, Failure> {
    // SAFETY: the caller's promises.
    let buffers = unsafe { slice(buffers, count, "buffers") }?.iter();
    buffers
        // SAFETY: the caller's promise.
        .map(|it| unsafe { bytes_mut(it.base.cast(), it.length, "buffer") })
        .collect()
}

/// The buffers to write from.
///
/// # Safety
/// As for [`slice`], and as for [`bytes`] for each buffer.
unsafe fn sources<'a>(
    buffers: *const zl_bytes,
    count: usize,
) -> Result<Vec<io::IoSlice<'a>>, Failure> {
    // SAFETY: the caller's promises.
    let buffers = unsafe { slice(buffers, count, "buffers") }?.iter();
    buffers
        .map(|it| {
            // SAFETY: the caller's promise.
            let bytes = unsafe { bytes(it.base.cast(), it.length, "buffer") }?;
            Ok(io::IoSlice::new(bytes))
        })
        .collect()
}

fn total(lengths: impl Iterator<Item = usize>) -> Result<usize, Failure> {
    let sum = lengths.into_iter().try_fold(0usize, usize::checked_add);
    sum.ok_or_else(|| Failure::argument("the buffers are longer than memory"))
}

/// The code of a stream's failure.
fn failure(error: io::Error) -> Failure {
    let Some(why) = StreamError::of(&error) else {
        return error.into();
    };
    let status = match why {
        StreamError::Reset(_) => zl_status::ZL_ERROR_RESET,
        StreamError::Finished => zl_status::ZL_ERROR_FINISHED,
        StreamError::Open(OpenError::TooMany) => zl_status::ZL_ERROR_TOO_MANY,
        StreamError::Open(OpenError::Purpose) => zl_status::ZL_ERROR_ARGUMENT,
        StreamError::Failed(failure) => match &**failure {
            session::Failure::Connection(error) => of_error(error),
            session::Failure::Violation(_) => zl_status::ZL_ERROR_PROTOCOL,
            session::Failure::Memory(_) => zl_status::ZL_ERROR_SYSTEM,
        },
        _ => zl_status::ZL_ERROR_CLOSED,
    };
    Failure::new(status, error.to_string())
}
