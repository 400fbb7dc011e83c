//! Packs many records and their contents into one Transfer.
//!
//! ```text
//! | contents, in the order of their records | manifest: records | contents: u32 | manifest: u32 |
//! ```
//! The lengths are at the end (little endian), so that files are read straight into their place at the front while the
//! manifest still grows.

use crate::error::Error;
use crate::limits::{MANIFEST_BYTES, RECORD_BYTES};
use crate::message::{Record, decode_record, encode_record};

const TRAILER_BYTES: usize = 8;

/// Builds a pack in a buffer that the caller holds.
#[derive(Debug, Default)]
pub(crate) struct PackWriter {
    contents: usize,
    manifest: Vec<u8>,
}

impl PackWriter {
    /// Whether nothing was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.manifest.is_empty()
    }

    /// Whether one more record, of any kind, and `contents` bytes fit a buffer of `capacity` bytes.
    pub(crate) fn fits(&self, contents: usize, capacity: usize) -> bool {
        let manifest = self.manifest.len() + RECORD_BYTES;
        manifest <= MANIFEST_BYTES
            && self.contents + contents + manifest + TRAILER_BYTES <= capacity
    }

    /// The place of the next contents; the caller has checked [`PackWriter::fits`].
    pub(crate) fn contents_at(&self) -> usize {
        self.contents
    }

    /// Adds a record and the `contents` bytes that the caller has placed for it.
    pub(crate) fn add(&mut self, record: &Record<'_>, contents: usize) -> Result<(), Error> {
        encode_record(record, &mut self.manifest)
            .ok_or(Error::Protocol("a record longer than its limit"))?;
        self.contents += contents;
        Ok(())
    }

    /// Completes the pack in `buffer` and returns its length; the writer is empty again.
    pub(crate) fn finish(&mut self, buffer: &mut [u8]) -> usize {
        let manifest_end = self.contents + self.manifest.len();
        let end = manifest_end + TRAILER_BYTES;
        buffer[self.contents..manifest_end].copy_from_slice(&self.manifest);
        buffer[manifest_end..manifest_end + 4]
            .copy_from_slice(&(self.contents as u32).to_le_bytes());
        buffer[manifest_end + 4..end].copy_from_slice(&(self.manifest.len() as u32).to_le_bytes());
        self.contents = 0;
        self.manifest.clear();
        end
    }
}

/// Reads a pack: records in order, each taking its contents off the front.
#[derive(Debug)]
pub(crate) struct PackReader<'a> {
    contents: &'a [u8],
    manifest: &'a [u8],
}

impl<'a> PackReader<'a> {
    /// Starts to read a received Transfer.
    ///
    /// # Errors
    /// [`Error::Protocol`] unless contents, manifest and trailer fill it exactly.
    pub(crate) fn parse(pack: &'a [u8]) -> Result<PackReader<'a>, Error> {
        const MALFORMED: Error = Error::Protocol("malformed pack");
        let (body, trailer) = pack.split_last_chunk::<TRAILER_BYTES>().ok_or(MALFORMED)?;
        let [c0, c1, c2, c3, m0, m1, m2, m3] = *trailer;
        let contents_len = u32::from_le_bytes([c0, c1, c2, c3]) as usize;
        let manifest_len = u32::from_le_bytes([m0, m1, m2, m3]) as usize;
        if manifest_len > MANIFEST_BYTES
            || contents_len.checked_add(manifest_len) != Some(body.len())
        {
            return Err(MALFORMED);
        }
        let (contents, manifest) = body.split_at(contents_len);
        Ok(PackReader { contents, manifest })
    }

    /// The next record, `None` after the last.
    pub(crate) fn next_record(&mut self) -> Result<Option<Record<'a>>, Error> {
        match self.manifest.is_empty() {
            true => Ok(None),
            false => decode_record(&mut self.manifest).map(Some),
        }
    }

    /// The contents of the record just read.
    pub(crate) fn take_contents(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self
            .contents
            .split_at_checked(len)
            .ok_or(Error::Protocol("contents missing in a pack"))?;
        self.contents = rest;
        Ok(taken)
    }

    /// Whether all records and contents were taken.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.contents.is_empty() && self.manifest.is_empty()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::limits::BUFFER_BYTES;
    use crate::message::Meta;

    fn file(name: &[u8], size: u32) -> Record<'_> {
        Record::File {
            name,
            meta: Meta::default(),
            size,
            digest: [1; 32],
        }
    }

    #[test]
    fn pack__roundtrip() {
        let mut buffer = vec![0xee; BUFFER_BYTES];
        let mut writer = PackWriter::default();
        for (name, contents) in [(&b"a"[..], &b"first"[..]), (b"b", b""), (b"c", b"third")] {
            assert!(writer.fits(contents.len(), buffer.len()));
            let at = writer.contents_at();
            buffer[at..at + contents.len()].copy_from_slice(contents);
            writer
                .add(&file(name, contents.len() as u32), contents.len())
                .unwrap();
        }
        let len = writer.finish(&mut buffer);
        assert!(writer.is_empty());

        let mut reader = PackReader::parse(&buffer[..len]).unwrap();
        for (name, contents) in [(&b"a"[..], &b"first"[..]), (b"b", b""), (b"c", b"third")] {
            assert_eq!(
                reader.next_record().unwrap(),
                Some(file(name, contents.len() as u32))
            );
            assert_eq!(reader.take_contents(contents.len()).unwrap(), contents);
        }
        assert!(reader.is_exhausted());
        assert_eq!(reader.next_record().unwrap(), None);
        assert!(reader.take_contents(1).is_err());
    }

    #[test]
    fn fits__what_fits_can_be_finished() {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut writer = PackWriter::default();
        let mut records = 0;
        while writer.fits(4096, buffer.len()) {
            writer.add(&file(&[b'x'; 255], 4096), 4096).unwrap();
            records += 1;
        }
        let len = writer.finish(&mut buffer);
        assert!(records > 200, "only {records} files of 4 KiB in a pack");
        assert!(len <= BUFFER_BYTES);
        assert!(PackReader::parse(&buffer[..len]).is_ok());
    }

    #[test]
    fn fits__manifest_is_bounded() {
        let mut writer = PackWriter::default();
        while writer.fits(0, BUFFER_BYTES) {
            writer.add(&file(&[b'x'; 255], 0), 0).unwrap();
        }
        assert!(writer.manifest.len() <= MANIFEST_BYTES);
    }

    #[test]
    fn parse__lengths_that_do_not_add_up() {
        let mut buffer = vec![0; 1024];
        let mut writer = PackWriter::default();
        writer.add(&Record::Finish, 3).unwrap();
        let len = writer.finish(&mut buffer);
        assert!(PackReader::parse(&buffer[..len]).is_ok());
        for cut in 0..len {
            assert!(PackReader::parse(&buffer[..cut]).is_err(), "cut to {cut}");
        }
        for bit in (len - TRAILER_BYTES) * 8..len * 8 {
            let mut bad = buffer[..len].to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(PackReader::parse(&bad).is_err(), "bit {bit}");
        }
    }
}
