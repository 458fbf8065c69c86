use holdfast_protocol::layout::{MAGIC, MEMORY_END};

use super::*;

#[test]
fn the_image_is_whole_fits_and_names_its_functions() {
    let image = Image::embedded();
    assert!(image.end() > IMAGE);
    assert_eq!(image.symbol(image.entry), Some(("_start", 0)));
    for segment in &image.segments {
        assert!(segment.address >= IMAGE && segment.address + segment.bytes <= MEMORY_END);
        assert!(segment.content.len() as u64 <= segment.bytes);
    }
    let has_magic = |segment: &Segment| segment.content.windows(MAGIC.len()).any(|window| window == MAGIC);
    assert!(image.segments.iter().any(has_magic), "an image of this version");
}
