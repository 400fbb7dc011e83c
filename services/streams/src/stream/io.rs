//! Reads and writes a stream: in a thread, and as a task.

use super::{Fill, Stream, block_on};
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Read, Result, Write};
use std::task::{Context, Poll};

impl Stream {
    /// Reads into `buffer`; 0 bytes are the end of the peer's direction.
    pub fn poll_read_into(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Result<usize>> {
        let mut state = self.shared.lock();
        let engine = state.engine();
        let mut read = 0;
        while read < buffer.len() {
            let bytes = engine.readable(self.id);
            let len = bytes.len().min(buffer.len() - read);
            if len == 0 {
                break;
            }
            buffer[read..read + len].copy_from_slice(&bytes[..len]);
            engine.consume(self.id, len);
            read += len;
        }
        if read > 0 {
            // Credit may be due.
            self.shared.waker.wake();
        }
        if read > 0 || buffer.is_empty() {
            return Poll::Ready(Ok(read));
        }
        if let Err(error) = state
            .session
            .engine
            .reset_reason(self.id)
            .map_or(Ok(()), |_| state.check(self.id))
        {
            return Poll::Ready(Err(error));
        }
        if state.engine().is_over(self.id) {
            return Poll::Ready(Ok(0));
        }
        if let Err(error) = state.check(self.id) {
            return Poll::Ready(Err(match error.kind() {
                // The peer did not end the stream, so bytes may be missing.
                ErrorKind::NotConnected => Error::new(ErrorKind::ConnectionReset, error),
                _ => error,
            }));
        }
        state.waiting.entry(self.id).or_default().reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Queues bytes of `buffers`, at least one unless they are empty.
    pub fn poll_write_from(
        &self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let mut state = self.shared.lock();
        if let Err(error) = state.check(self.id) {
            return Poll::Ready(Err(match error.kind() {
                ErrorKind::NotConnected => Error::new(ErrorKind::BrokenPipe, error),
                _ => error,
            }));
        }
        if buffers.iter().all(|it| it.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        let filled = state.engine().fill(self.id, |place| {
            let mut filled = 0;
            for buffer in buffers {
                let len = buffer.len().min(place.len() - filled);
                place[filled..filled + len].copy_from_slice(&buffer[..len]);
                filled += len;
            }
            Ok(filled)
        });
        match filled {
            Fill::Asked(written) => {
                self.shared.waker.wake();
                Poll::Ready(written)
            }
            Fill::Ended => {
                let words = "the stream was finished before";
                Poll::Ready(Err(Error::new(ErrorKind::BrokenPipe, words)))
            }
            Fill::Full => {
                // The peer may have to be told that its credit is used.
                self.shared.waker.wake();
                state.waiting.entry(self.id).or_default().writer = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        block_on(|cx| self.poll_read_into(cx, buffer))
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let mut read = 0;
        for buffer in buffers.iter_mut().filter(|it| !it.is_empty()) {
            let here = match read {
                0 => self.read(buffer)?,
                _ => {
                    let mut now = Context::from_waker(std::task::Waker::noop());
                    match self.poll_read_into(&mut now, buffer) {
                        Poll::Ready(Ok(here)) => here,
                        // An error is that of the next read.
                        Poll::Ready(Err(_)) | Poll::Pending => 0,
                    }
                }
            };
            read += here;
            if here < buffer.len() {
                break;
            }
        }
        Ok(read)
    }
}

impl Write for &Stream {
    fn write(&mut self, buffer: &[u8]) -> Result<usize> {
        self.write_vectored(&[IoSlice::new(buffer)])
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> Result<usize> {
        block_on(|cx| self.poll_write_from(cx, buffers))
    }

    /// Does nothing: what is queued leaves by itself.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        (&*self).read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        (&*self).read_vectored(buffers)
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> Result<usize> {
        (&*self).write(buffer)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> Result<usize> {
        (&*self).write_vectored(buffers)
    }

    /// Does nothing: what is queued leaves by itself.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(feature = "tokio")]
mod tasks {
    use super::{Context, IoSlice, Poll, Result, Stream};
    use std::pin::Pin;
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    impl AsyncRead for Stream {
        fn poll_read(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<Result<()>> {
            let read = self.poll_read_into(cx, buffer.initialize_unfilled());
            read.map_ok(|len| buffer.advance(len))
        }
    }

    impl AsyncWrite for Stream {
        fn poll_write(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &[u8],
        ) -> Poll<Result<usize>> {
            self.poll_write_from(cx, &[IoSlice::new(buffer)])
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffers: &[IoSlice<'_>],
        ) -> Poll<Result<usize>> {
            self.poll_write_from(cx, buffers)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(self.finish())
        }
    }
}
