//! Text of a guest, made harmless for terminals and reports.

/// Returns `text` without control characters, for a terminal or a report: at most `most` bytes of it, then the number
/// of bytes that were cut. Characters that cannot be seen and invalid UTF-8 are escaped. So is U+FFFD: a reader takes
/// it for a byte that was lost here. `line_break` replaces the end of a line.
pub(crate) fn printable(text: &[u8], line_break: &str, most: usize) -> String {
    let mut shown = String::new();
    let mut read = 0;
    for chunk in text.utf8_chunks() {
        let valid = chunk.valid().chars().map(|c| (c.len_utf8(), escaped(c, line_break)));
        let invalid = chunk.invalid().iter().map(|byte| (1, format!("\\x{byte:02x}")));
        for (bytes, piece) in valid.chain(invalid) {
            if shown.len() + piece.len() > most {
                return format!("{shown}... ({} more bytes)", text.len() - read);
            }
            shown += &piece;
            read += bytes;
        }
    }
    shown
}

fn escaped(c: char, line_break: &str) -> String {
    match c {
        '\n' => line_break.to_owned(),
        // `escape_debug` escapes these for literals.
        '\'' | '"' | '\\' => c.into(),
        char::REPLACEMENT_CHARACTER => c.escape_unicode().collect(),
        _ => c.escape_debug().collect(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
