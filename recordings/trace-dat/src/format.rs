//! What events consist of: the files `events/SYSTEM/EVENT/format` of tracefs.
//!
//! ```text
//! name: sched_wakeup
//! ID: 374
//! format:
//!         field:unsigned short common_type;       offset:0;       size:2; signed:0;
//!         field:__data_loc char[] comm;   offset:8;       size:4; signed:0;
//! ```
//!
//! A field with `__data_loc` has the place of its bytes in the event: the length in the upper half of 32 bits, the
//! offset in the lower half. With `__rel_loc` the offset counts from the end of the field.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Longest format that is read, in bytes.
const FORMAT_BYTES_MAX: usize = 1 << 20;

/// Where the bytes of a field are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the field itself.
    Here,
    /// Where the field says, from the begin of the event (`__data_loc`).
    DataLoc,
    /// Where the field says, from the end of the field (`__rel_loc`).
    RelLoc,
}

/// A field of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type, as in C, without the length of an array.
    pub kind: String,
    /// Its offset in the event, in bytes.
    pub offset: usize,
    /// Its length, in bytes. 0: to the end of the event.
    pub size: usize,
    /// Its numbers have a sign.
    pub signed: bool,
    /// Where its bytes are.
    pub place: Place,
}

impl Field {
    /// Returns the field's bytes in an event, or `None` if the event is too short.
    #[must_use]
    pub fn bytes<'a>(&self, event: &'a [u8]) -> Option<&'a [u8]> {
        if self.size == 0 && self.place == Place::Here {
            return event.get(self.offset..);
        }
        let end = self.offset.checked_add(self.size)?;
        let here = event.get(self.offset..end)?;
        let origin = match self.place {
            Place::Here => return Some(here),
            Place::DataLoc => 0,
            Place::RelLoc => end,
        };
        let location = u32::from_le_bytes(here.try_into().ok()?);
        let begin = origin.checked_add((location & 0xffff) as usize)?;
        event.get(begin..begin.checked_add((location >> 16) as usize)?)
    }

    /// Returns the field's number in an event, extended with its sign. `None` if the event is too short, or the field
    /// has not 1, 2, 4 or 8 bytes.
    #[must_use]
    pub fn number(&self, event: &[u8]) -> Option<i64> {
        let end = self.offset.checked_add(self.size)?;
        let bytes = event.get(self.offset..end)?;
        Some(match (self.size, self.signed) {
            (1, false) => i64::from(bytes[0]),
            (1, true) => i64::from(bytes[0] as i8),
            (2, false) => i64::from(u16::from_le_bytes(bytes.try_into().ok()?)),
            (2, true) => i64::from(i16::from_le_bytes(bytes.try_into().ok()?)),
            (4, false) => i64::from(u32::from_le_bytes(bytes.try_into().ok()?)),
            (4, true) => i64::from(i32::from_le_bytes(bytes.try_into().ok()?)),
            (8, _) => i64::from_le_bytes(bytes.try_into().ok()?),
            _ => return None,
        })
    }

    /// Reads one line of a format.
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.trim().split(';').map(str::trim);
        let declaration = parts.next()?.strip_prefix("field:")?.trim();
        let (mut offset, mut size, mut signed) = (None, None, false);
        for part in parts {
            match part.split_once(':') {
                Some(("offset", number)) => offset = number.trim().parse().ok(),
                Some(("size", number)) => size = number.trim().parse().ok(),
                Some(("signed", number)) => signed = number.trim() != "0",
                _ => {}
            }
        }
        let (place, declaration) = match declaration.split_once(' ') {
            Some(("__data_loc", rest)) => (Place::DataLoc, rest),
            Some(("__rel_loc", rest)) => (Place::RelLoc, rest),
            _ => (Place::Here, declaration),
        };
        // The length of an array follows its name.
        let declaration = declaration.trim_end();
        let named = match declaration.strip_suffix(']') {
            Some(array) => array.rsplit_once('[').map_or(declaration, |(named, _)| named),
            None => declaration,
        };
        let (kind, name) = named.trim_end().rsplit_once([' ', '*'])?;
        let (name, kind) = (name.to_owned(), kind.trim().to_owned());
        Some(Self {
            name,
            kind,
            offset: offset?,
            size: size?,
            signed,
            place,
        })
    }
}

/// What an event consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// Its system, for instance `sched`.
    pub system: String,
    /// Its name, for instance `sched_switch`.
    pub name: String,
    /// Its number, which is the field `common_type` of the event.
    pub id: u16,
    /// Its fields, those that all events have first.
    pub fields: Vec<Field>,
}

impl Format {
    /// Reads the text of a file `format`. `None` if it has no name or no number.
    #[must_use]
    pub fn parse(system: &str, text: &[u8]) -> Option<Self> {
        if text.len() > FORMAT_BYTES_MAX {
            return None;
        }
        let text = String::from_utf8_lossy(text);
        let (mut name, mut id) = (None, None);
        let mut fields = Vec::new();
        for line in text.lines() {
            let line = line.trim();
            if let Some(text) = line.strip_prefix("name:") {
                name = Some(text.trim().to_owned());
            } else if let Some(text) = line.strip_prefix("ID:") {
                id = text.trim().parse().ok();
            } else if line.starts_with("print fmt:") {
                break;
            } else if let Some(field) = Field::parse(line) {
                fields.push(field);
            }
        }
        let (name, id) = (name?, id?);
        Some(Self {
            system: system.to_owned(),
            name,
            id,
            fields,
        })
    }

    /// Returns a field by its name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// The formats of a file, by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Formats {
    by_id: BTreeMap<u16, Arc<Format>>,
}

impl Formats {
    /// Adds a format. The last one of a number counts.
    pub fn add(&mut self, format: Format) {
        self.by_id.insert(format.id, Arc::new(format));
    }

    /// Returns the format with this number.
    #[must_use]
    pub fn get(&self, id: u16) -> Option<&Arc<Format>> {
        self.by_id.get(&id)
    }

    /// Returns the format of an event's bytes: in all kernels so far, its first two bytes are its number.
    #[must_use]
    pub fn of(&self, event: &[u8]) -> Option<&Arc<Format>> {
        self.get(u16::from_le_bytes(*event.first_chunk()?))
    }

    /// Returns all formats in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Format>> {
        self.by_id.values()
    }
}

#[cfg(test)]
mod tests {
    use super::{Field, Format, Place};

    #[test]
    fn declarations_of_c_are_understood() {
        for (line, name, kind, place) in [
            (
                "field:unsigned short common_type;	offset:0;	size:2;	signed:0;",
                "common_type",
                "unsigned short",
                Place::Here,
            ),
            (
                "field:char prev_comm[16];	offset:8;	size:16;	signed:0;",
                "prev_comm",
                "char",
                Place::Here,
            ),
            (
                "field:__data_loc char[] comm;	offset:8;	size:4;	signed:0;",
                "comm",
                "char[]",
                Place::DataLoc,
            ),
            (
                "field:__rel_loc cpumask_t cpus;	offset:8;	size:4;	signed:0;",
                "cpus",
                "cpumask_t",
                Place::RelLoc,
            ),
            (
                "	field:const char * str;	offset:8;	size:8;	signed:0;",
                "str",
                "const char *",
                Place::Here,
            ),
            (
                "field:u32 buf[];	offset:8;	size:0;	signed:0;",
                "buf",
                "u32",
                Place::Here,
            ),
            (
                "field: local_t commit;	offset:8;	size:8;	signed:1;",
                "commit",
                "local_t",
                Place::Here,
            ),
        ] {
            let field = Field::parse(line).expect(line);
            assert_eq!((&*field.name, &*field.kind, field.place), (name, kind, place), "{line}");
        }
    }

    #[test]
    fn fields_end_where_the_event_ends() {
        let text = "name: a\nID: 7\nformat:\n field:int n; offset:4; size:4; signed:1;\n\
            field:__data_loc char[] s; offset:8; size:4; signed:0;\n field:__rel_loc char[] r; offset:12; size:4; signed:0;";
        let format = Format::parse("x", text.as_bytes()).expect("a format");
        let mut event = vec![
            7, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 16, 0, 2, 0, 2, 0, 1, 0, b'h', b'i', b'r',
        ];
        let field = |name| format.field(name).expect("a field");
        assert_eq!(field("n").number(&event), Some(-2));
        assert_eq!(field("s").bytes(&event), Some(&b"hi"[..]));
        assert_eq!(field("r").bytes(&event), Some(&b"r"[..]));
        event.truncate(17);
        assert_eq!(field("s").bytes(&event), None);
        assert_eq!(field("r").bytes(&event), None);
        event.truncate(7);
        assert_eq!(field("n").number(&event), None);
    }
}
