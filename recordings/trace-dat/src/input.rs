//! Reads of bounded length from a place of the file, and from bytes.

use std::io::{Read, Seek, SeekFrom};

use crate::error::{Error, ErrorKind};

/// A file with its length and the place of the next read.
#[derive(Debug)]
pub(crate) struct Input<R> {
    from: R,
    length: u64,
    at: u64,
}

impl<R: Read + Seek> Input<R> {
    /// Takes the file at any place and finds its length.
    pub(crate) fn new(mut from: R) -> Result<Self, Error> {
        let io = |error| Error::new(0, ErrorKind::Io(error));
        let length = from.seek(SeekFrom::End(0)).map_err(io)?;
        from.seek(SeekFrom::Start(0)).map_err(io)?;
        Ok(Self { from, length, at: 0 })
    }

    /// Returns the length of the file, in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Returns the place of the next read.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Goes to a place, which is in the file or its end.
    pub(crate) fn seek(&mut self, at: u64, what: &'static str) -> Result<(), Error> {
        if at > self.length {
            return Err(Error::truncated(at, what));
        }
        if at != self.at {
            self.from
                .seek(SeekFrom::Start(at))
                .map_err(|error| Error::new(at, ErrorKind::Io(error)))?;
            self.at = at;
        }
        Ok(())
    }

    /// Adds the next `bytes` to `to`. The caller has limited them.
    pub(crate) fn append(&mut self, bytes: u64, to: &mut Vec<u8>, what: &'static str) -> Result<(), Error> {
        if bytes > self.length - self.at {
            return Err(Error::truncated(self.length, what));
        }
        let read = (&mut self.from).take(bytes).read_to_end(to);
        let read = read.map_err(|error| Error::new(self.at, ErrorKind::Io(error)))?;
        self.at += read as u64;
        match read as u64 == bytes {
            true => Ok(()),
            // The file has become shorter.
            false => Err(Error::truncated(self.at, what)),
        }
    }

    /// Reads `bytes`, at most `limit`.
    pub(crate) fn take(&mut self, bytes: u64, limit: u64, what: &'static str) -> Result<Vec<u8>, Error> {
        if bytes > limit {
            return Err(Error::damaged(self.at, format!("{what} of {bytes} bytes")));
        }
        let mut taken = Vec::new();
        self.append(bytes, &mut taken, what)?;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Error> {
        let mut taken = [0; N];
        if N as u64 > self.length - self.at {
            return Err(Error::truncated(self.length, what));
        }
        self.from
            .read_exact(&mut taken)
            .map_err(|error| Error::new(self.at, ErrorKind::Io(error)))?;
        self.at += N as u64;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, Error> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, Error> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// Reads a text that a NUL ends.
    pub(crate) fn text(&mut self, limit: usize, what: &'static str) -> Result<String, Error> {
        let begin = self.at;
        let mut text = Vec::new();
        loop {
            match self.u8(what)? {
                0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
                _ if text.len() >= limit => return Err(Error::damaged(begin, format!("{what} without an end"))),
                byte => text.push(byte),
            }
        }
    }
}

/// Bytes that are read one value after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a> {
    rest: &'a [u8],
    length: usize,
    /// Place of the first byte in the file, for errors.
    begin: u64,
    what: &'static str,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(bytes: &'a [u8], begin: u64, what: &'static str) -> Self {
        Self {
            rest: bytes,
            length: bytes.len(),
            begin,
            what,
        }
    }

    /// Returns the place of the next byte in the file. What was compressed has the place of its begin.
    pub(crate) fn at(&self) -> u64 {
        self.begin + (self.length - self.rest.len()) as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn take(&mut self, bytes: u64) -> Result<&'a [u8], Error> {
        let taken = usize::try_from(bytes)
            .ok()
            .and_then(|bytes| self.rest.split_at_checked(bytes));
        let (taken, rest) = taken.ok_or_else(|| Error::truncated(self.at(), self.what))?;
        self.rest = rest;
        Ok(taken)
    }

    /// Takes bytes that are read on their own.
    pub(crate) fn part(&mut self, bytes: u64) -> Result<Self, Error> {
        let begin = self.at();
        Ok(Self::new(self.take(bytes)?, begin, self.what))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let taken = self.take(N as u64)?;
        Ok(taken.try_into().expect("of this length"))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a text that a NUL ends.
    pub(crate) fn text(&mut self) -> Result<String, Error> {
        let end = self.rest.iter().position(|&byte| byte == 0);
        let end = end.ok_or_else(|| Error::truncated(self.at(), self.what))?;
        let text = String::from_utf8_lossy(&self.rest[..end]).into_owned();
        self.rest = &self.rest[end + 1..];
        Ok(text)
    }
}
