//! Text of the page.

use maud::{Markup, html};

use crate::display::{number, percent};

/// Renders `text` so that options do not break at their dashes, and numbers keep their unit.
pub(crate) fn prose(text: &str) -> Markup {
    let text = text.replace(" %", "\u{a0}%");
    html! {
        @for (index, word) in text.split(' ').enumerate() {
            @if index > 0 { " " }
            @if word.contains('-') { span class="word" { (word) } } @else { (word) }
        }
    }
}

/// Returns `share` in words, for screen readers.
pub(super) fn spoken(name: &str, share: f64) -> String {
    match percent(share).as_str() {
        "-" => format!("{name} none"),
        percent => format!("{name} {percent} %"),
    }
}

/// Returns `value` with its unit.
pub(super) fn spoken_number(value: f64, unit: &str) -> String {
    format!("{} {unit}", number(value))
}
