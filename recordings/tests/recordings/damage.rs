//! Damaged files: what is read of them, and how they are made.

use std::io::Cursor;

use holdfast_recordings::read::read;
use proptest::prelude::{Strategy, any, prop};

/// Reads all of a file that may be damaged: the number of its events and the errors.
pub fn read_all(bytes: Vec<u8>) -> (usize, Vec<String>) {
    let recording = match read(Cursor::new(bytes)) {
        Ok(recording) => recording,
        Err(error) => return (0, vec![error.to_string()]),
    };
    let (mut events, mut errors, mut now) = (0, Vec::new(), 0);
    for event in recording {
        match event {
            Ok(event) => {
                assert!(event.at >= now, "the time goes back");
                now = event.at;
                events += 1;
            }
            Err(error) => errors.push(error.to_string()),
        }
    }
    (events, errors)
}

/// A place of a file, and the byte or the number that is written there.
#[derive(Clone, Debug)]
pub enum Edit {
    Byte(prop::sample::Index, u8),
    Number(prop::sample::Index, u64),
    CutOff(prop::sample::Index),
}

/// Some edits. Numbers are often at the limits of their types.
pub fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let number = (any::<u64>(), 0..6).prop_map(|(number, kind)| match kind {
        0 => u64::MAX,
        1 => u64::from(u32::MAX),
        2 => 0,
        3 => number >> 44,
        4 => 1 << 31,
        _ => number,
    });
    let edit =
        (any::<prop::sample::Index>(), any::<u8>(), number, 0..40).prop_map(|(place, byte, number, kind)| match kind {
            0..=20 => Edit::Byte(place, byte),
            21..=38 => Edit::Number(place, number),
            _ => Edit::CutOff(place),
        });
    prop::collection::vec(edit, 1..30)
}

/// Returns the file with the edits.
pub fn mutated(file: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for edit in edits {
        if bytes.len() < 16 {
            break;
        }
        match edit {
            Edit::Byte(place, byte) => {
                let place = place.index(bytes.len());
                bytes[place] = *byte;
            }
            Edit::Number(place, number) => {
                let place = place.index(bytes.len() - 8);
                bytes[place..place + 8].copy_from_slice(&number.to_le_bytes());
            }
            Edit::CutOff(place) => bytes.truncate(place.index(bytes.len())),
        }
    }
    bytes
}
