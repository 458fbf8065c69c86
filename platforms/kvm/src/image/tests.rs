use proptest::prelude::*;

use super::*;

#[test]
fn the_embedded_image_is_whole_and_names_its_functions() {
    let image = Image::embedded();
    assert!(image.end() > IMAGE);
    assert_eq!(image.symbol(image.entry), Some(("_start", 0)));
}

#[test]
fn a_foreign_file_is_refused() {
    assert!(matches!(Image::parse(b"#!/bin/sh\n"), Err(ImageError::NotElf(_))));
    let own = std::fs::read("/proc/self/exe").expect("a process can read its own file");
    let found = Image::parse(&own);
    assert!(
        matches!(
            found,
            Err(ImageError::Foreign | ImageError::SegmentOutOfRange { .. } | ImageError::NotHoldfast)
        ),
        "{:?}",
        found.err()
    );
}

#[test]
fn a_truncated_image_is_refused_or_lacks_only_symbols() {
    // Symbols follow the segments. Without them the image still boots, and backtraces have no names.
    for bytes in (0..EMBEDDED.len()).step_by(997) {
        if let Err(error) = Image::parse(&EMBEDDED[..bytes]) {
            assert!(!error.to_string().is_empty());
        }
    }
    assert!(Image::parse(&EMBEDDED[..EMBEDDED.len() / 4]).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_damage_makes_reading_panic(places in proptest::collection::vec((0..4096usize, any::<u8>()), 1..20)) {
        let mut damaged = EMBEDDED.to_vec();
        for (place, byte) in places {
            damaged[place % 512] = byte;
        }
        let _ = Image::parse(&damaged);
    }
}
