//! Decompression, within limits.

use crate::error::Error;

/// Decompresses sections and chunks of a file.
///
/// It needs the feature `zstd`. Without it every use says so.
#[derive(Default)]
pub struct Unpacker {
    #[cfg(feature = "zstd")]
    decoder: Option<Box<ruzstd::decoding::FrameDecoder>>,
}

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unpacker").finish_non_exhaustive()
    }
}

impl Unpacker {
    /// Decompresses `packed`, which must become `bytes` long.
    ///
    /// # Errors
    ///
    /// `packed` is damaged or becomes another length. `offset` is its place, for the error. The caller has limited
    /// `bytes`.
    #[cfg(feature = "zstd")]
    pub fn unpack(&mut self, packed: &[u8], bytes: usize, offset: u64) -> Result<Vec<u8>, Error> {
        let decoder = self.decoder.get_or_insert_with(|| {
            let mut decoder = ruzstd::decoding::FrameDecoder::new();
            // A frame in one piece has a window as long as its contents, which the caller has limited.
            decoder.set_max_window_size(WINDOW_BYTES_MAX);
            Box::new(decoder)
        });
        let mut unpacked = vec![0; bytes];
        match decoder.decode_all(packed, &mut unpacked) {
            Ok(length) if length == bytes => Ok(unpacked),
            Ok(length) => Err(Error::damaged(
                offset,
                format!("{length} decompressed bytes, not {bytes}"),
            )),
            Err(error) => Err(Error::damaged(offset, format!("compressed data: {error}"))),
        }
    }

    /// Says that nothing can be decompressed.
    ///
    /// # Errors
    ///
    /// Always.
    #[cfg(not(feature = "zstd"))]
    pub fn unpack(&mut self, _: &[u8], _: usize, offset: u64) -> Result<Vec<u8>, Error> {
        Err(Error::unsupported(offset, "compression by zstd (built without it)"))
    }
}

/// The decoder keeps at most this many bytes behind the place that it has reached.
#[cfg(feature = "zstd")]
const WINDOW_BYTES_MAX: u64 = 64 << 20;
