use proptest::prelude::*;

use super::*;

/// Returns whether `text` may be written to a terminal: it has no control characters, and no characters that
/// change the order or the place of others.
pub(crate) fn is_harmless(text: &str) -> bool {
    let moves =
        |c| matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    !text.chars().any(|c| c.is_control() || moves(c))
}

#[test]
fn plain_text_stays_and_the_rest_is_escaped() {
    for text in [
        "",
        "PV spinlocks disabled, forced by \"nopvspin\" parameter",
        "it's 3 µs \\ done",
    ] {
        assert_eq!(printable(text.as_bytes(), "\\n", 100), text);
    }
    assert_eq!(printable(b"\x1b[2J\ta\r\n\x00", "\\n", 100), "\\u{1b}[2J\\ta\\r\\n\\0");
    assert_eq!(printable(b"a\xff\xc3(\nb", "\n  | ", 100), "a\\xff\\xc3(\n  | b");
    assert_eq!(printable("\u{202e}\u{9b}".as_bytes(), "", 100), "\\u{202e}\\u{9b}");
    assert_eq!(printable("\u{fffd}".as_bytes(), "", 100), "\\u{fffd}");
    assert_eq!(printable(b"0123456789", "", 4), "0123... (6 more bytes)");
}

proptest! {
    #[test]
    fn no_bytes_reach_a_terminal_as_anything_but_short_text(
        bytes in proptest::collection::vec(prop_oneof![any::<u8>(), 0u8..32, 0x7fu8..0xa0], 0..3000), most in 0usize..2000
    ) {
        let shown = printable(&bytes, "\\n", most);
        prop_assert!(is_harmless(&shown), "{shown:?}");
        prop_assert!(shown.len() <= most + "... (3000 more bytes)".len());
        // Once is enough.
        let whole = printable(&bytes, "\\n", usize::MAX);
        prop_assert_eq!(printable(whole.as_bytes(), "\\n", usize::MAX), whole);
    }
}
