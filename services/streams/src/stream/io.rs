//! Reads and writes a stream: in a thread, and as a task.

use super::{Fill, Stream, StreamError, block_on};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Result, Write};
use std::task::{Context, Poll, Waker};

impl Stream {
    /// Reads into `buffer`; 0 bytes are the end of the peer's direction.
    pub fn poll_read_into(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Result<usize>> {
        let mut read = 0;
        self.poll_read_with(cx, buffer.len(), |bytes| {
            buffer[read..][..bytes.len()].copy_from_slice(bytes);
            read += bytes.len();
        })
    }

    /// Hands at most `most` bytes to `take`, in pieces; returns how many. 0 are the end of the peer's direction, unless
    /// `most` is 0. The connection stands still meanwhile.
    pub fn poll_read_with(
        &self,
        cx: &mut Context<'_>,
        most: usize,
        mut take: impl FnMut(&[u8]),
    ) -> Poll<Result<usize>> {
        let mut state = self.shared.lock()?;
        state.held(self.id)?;
        let engine = state.engine();
        let mut read = 0;
        while read < most {
            let bytes = engine.readable(self.id);
            let len = bytes.len().min(most - read);
            if len == 0 {
                break;
            }
            take(&bytes[..len]);
            engine.consume(self.id, len);
            read += len;
        }
        if read > 0 {
            // Credit may be due.
            self.shared.waker.wake();
        }
        if read > 0 || most == 0 {
            return Poll::Ready(Ok(read));
        }
        let is_reset = engine.reset_reason(self.id).is_some();
        if !is_reset && engine.is_over(self.id) {
            return Poll::Ready(Ok(0));
        }
        let checked = state.check(self.id);
        checked.map_err(|it| it.of_data(ErrorKind::ConnectionReset))?;
        state.held(self.id)?.readers.add(cx.waker());
        Poll::Pending
    }

    /// Queues bytes of `buffers`, at least one unless they are empty.
    pub fn poll_write_from(
        &self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let most = buffers.iter().map(|it| it.len()).sum();
        self.poll_write_with(cx, most, |mut place| {
            for buffer in buffers {
                let (here, behind) = place.split_at_mut(buffer.len().min(place.len()));
                here.copy_from_slice(&buffer[..here.len()]);
                place = behind;
            }
        })
    }

    /// Queues bytes that `fill` writes to all of the memory it is given: at most `most`, at least one unless `most` is 0.
    /// Returns how many. The connection stands still meanwhile.
    pub fn poll_write_with(
        &self,
        cx: &mut Context<'_>,
        most: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Poll<Result<usize>> {
        let mut state = self.shared.lock()?;
        let checked = state.check(self.id);
        checked.map_err(|it| it.of_data(ErrorKind::BrokenPipe))?;
        if most == 0 {
            return Poll::Ready(Ok(0));
        }
        let filled = state.engine().fill(self.id, |place| {
            let len = place.len().min(most);
            fill(&mut place[..len]);
            Ok(len)
        });
        // The peer may have to be told that its credit is used.
        self.shared.waker.wake();
        match filled {
            Fill::Asked(written) => Poll::Ready(written),
            Fill::Ended => Poll::Ready(Err(StreamError::Finished.into())),
            Fill::Full => {
                state.held(self.id)?.writers.add(cx.waker());
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
                    let mut now = Context::from_waker(Waker::noop());
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
