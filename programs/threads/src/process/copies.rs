//! The copies of this code in a process: how they find each other, and agree on one state, of which this file knows the
//! address only.

#![expect(unsafe_code, reason = "reads the notes that the dynamic linker has mapped")]

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicPtr};

#[cfg(target_pointer_width = "32")]
use libc::Elf32_Phdr as Segment;
#[cfg(target_pointer_width = "64")]
use libc::Elf64_Phdr as Segment;

/// What a copy says of itself to the others. The first three fields are the same in all versions.
#[repr(C)]
pub(super) struct Copy {
    version: [u8; 24],
    /// The size of the state.
    bytes: u32,
    /// Whether the copy is in a library for C.
    for_c: AtomicBool,
    /// The state that this copy uses, or null if it has not chosen yet.
    chosen: AtomicPtr<c_void>,
}

const fn padded(text: &str) -> [u8; 24] {
    let (mut padded, mut at) = ([0; 24], 0);
    while at < text.len() {
        padded[at] = text.as_bytes()[at];
        at += 1;
    }
    padded
}

impl Copy {
    /// Makes the description of a copy that has not chosen a state, whose size is `bytes`.
    pub(super) const fn new(bytes: usize) -> Self {
        Copy {
            version: padded(concat!("Holdfast ", env!("CARGO_PKG_VERSION"))),
            bytes: bytes as u32,
            for_c: AtomicBool::new(false),
            chosen: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn is_same_version(&self, other: &Copy) -> bool {
        (self.version, self.bytes) == (other.version, other.bytes)
    }

    /// Returns the state that this copy uses, or null if it has not chosen yet.
    #[inline]
    pub(super) fn chosen(&self) -> *const c_void {
        // ORDERING: Acquire; pairs with the Release in `choose`, of this copy or another one.
        self.chosen.load(Acquire)
    }

    /// Chooses a state, unless this copy has one. Returns the one that it has.
    #[cold]
    pub(super) fn choose(&self, wanted: *const c_void) -> *const c_void {
        // ORDERING: AcqRel; the Release pairs with the Acquire in `chosen`.
        match self
            .chosen
            .compare_exchange(ptr::null_mut(), wanted.cast_mut(), AcqRel, Acquire)
        {
            Ok(_) => wanted,
            Err(chosen) => chosen,
        }
    }

    /// Chooses the state that another copy of the same version has chosen, or `own` if there is none. Returns it.
    pub(super) fn meet(&self, own: *const c_void) -> *const c_void {
        let mut wanted = own;
        for_each_copy(&mut |_, copy| {
            if !ptr::eq(copy, self) && copy.is_same_version(self) && !copy.chosen().is_null() {
                wanted = copy.chosen();
            }
        });
        if self.choose(wanted) != wanted {
            refuse(&[
                b"this process has two copies of its code that threads waited in before they met. \
                Link both of their users with the shared library, or load the second one later.\n",
            ]);
        }
        wanted
    }

    /// Ends the process with a message if it contains this code for C in another version.
    pub(super) fn refuse_other_versions(&self) {
        // ORDERING: Relaxed, here and below; the dynamic linker loads one object at a time.
        self.for_c.store(true, Relaxed);
        let mut mine = c"".as_ptr();
        for_each_copy(&mut |object, copy| {
            if ptr::eq(copy, self) {
                mine = object.as_ptr();
            }
        });
        // SAFETY: an object's name, which stays: this code belongs to the object.
        let mine = unsafe { CStr::from_ptr(mine) };
        for_each_copy(&mut |object, copy| {
            if copy.for_c.load(Relaxed) && !copy.is_same_version(self) {
                refuse(&[
                    b"two versions for C are in this process, and a lock that both use would be broken: ",
                    text(&copy.version),
                    b" in ",
                    name(object),
                    b" and ",
                    text(&self.version),
                    b" in ",
                    name(mine),
                    b". Link both with the shared library, or with the same version.\n",
                ]);
            }
        });
    }
}

/// Returns the name of an object, of which the dynamic linker says nothing if it is the program.
fn name(object: &CStr) -> &[u8] {
    if object.is_empty() {
        b"the program"
    } else {
        object.to_bytes()
    }
}

/// Returns the bytes before the first 0.
fn text(padded: &[u8; 24]) -> &[u8] {
    let end = padded.iter().position(|&byte| byte == 0);
    &padded[..end.unwrap_or(padded.len())]
}

/// Prints a message and ends the process, without memory or locks of the C library.
#[cold]
fn refuse(message: &[&[u8]]) -> ! {
    for part in [b"holdfast: ".as_slice()].iter().chain(message) {
        // SAFETY: the part is readable for its length.
        unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
    }
    // SAFETY: the function has no preconditions.
    unsafe { libc::abort() }
}

/// The name of the note that `process.rs` makes, with the 0 that ends it.
const NAME: &[u8; 9] = b"Holdfast\0";
/// The type of the note.
const TYPE: u32 = 1;

/// Calls `look` for each copy of this code in the process, with the name of its object.
fn for_each_copy(mut look: &mut dyn FnMut(&CStr, &Copy)) {
    // SAFETY: `look` outlives the call, and `in_object` gets the address that it expects.
    unsafe { libc::dl_iterate_phdr(Some(in_object), (&raw mut look).cast()) };
}

/// Calls the function to which `look` points for each note of one object.
///
/// # Safety
/// `info` must describe a loaded object, and `look` point to a reference to the function.
unsafe extern "C" fn in_object(info: *mut libc::dl_phdr_info, _bytes: usize, look: *mut c_void) -> c_int {
    // SAFETY: as the caller promises.
    let info = unsafe { &*info };
    // SAFETY: as the caller promises.
    let look = unsafe { &mut *look.cast::<&mut dyn FnMut(&CStr, &Copy)>() };
    for index in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: the object has so many segments.
        let segment: &Segment = unsafe { &*info.dlpi_phdr.wrapping_add(index) };
        if segment.p_type != libc::PT_NOTE {
            continue;
        }
        let start = ptr::with_exposed_provenance::<u8>(info.dlpi_addr as usize + segment.p_vaddr as usize);
        // SAFETY: the dynamic linker has mapped the segment, and unloads nothing during the call.
        let notes = unsafe { core::slice::from_raw_parts(start, segment.p_memsz as usize) };
        // SAFETY: as the caller promises, it is an object's name that ends with 0, or null.
        let object = unsafe { info.dlpi_name.as_ref() }.map_or(c"", |name| unsafe { CStr::from_ptr(name) });
        for_each_note(notes, segment.p_align as usize, &mut |content| {
            let Some(distance) = content.first_chunk().copied().map(i32::from_ne_bytes) else {
                return;
            };
            let copy =
                ptr::with_exposed_provenance::<Copy>(content.as_ptr().addr().wrapping_add_signed(distance as isize));
            // SAFETY: the note is one of this code: the linker has written the distance to a static value of this type,
            // whose first fields are the same in all versions.
            look(object, unsafe { &*copy });
        });
    }
    0
}

/// Calls `found` with the content of each note of this code.
fn for_each_note<'a>(mut notes: &'a [u8], align: usize, found: &mut dyn FnMut(&'a [u8])) {
    // GNU property notes are aligned to 8 bytes, all others to 4.
    let align = if align == 8 { 8 } else { 4 };
    while let Some((head, rest)) = notes.split_first_chunk::<12>() {
        let field = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (name_bytes, content_bytes) = (field(0) as usize, field(4) as usize);
        let content_at = (12 + name_bytes).next_multiple_of(align) - 12;
        let Some(content) = rest.get(content_at..).and_then(|rest| rest.get(..content_bytes)) else {
            return;
        };
        if field(8) == TYPE && rest.get(..name_bytes) == Some(NAME) {
            found(content);
        }
        let next = (12 + content_at + content_bytes).next_multiple_of(align);
        notes = notes.get(next..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_others_and_broken_ones_are_passed_over() {
        let note = |name: &[u8], kind: u32, content: &[u8]| {
            let mut note = Vec::new();
            for field in [name.len() as u32, content.len() as u32, kind] {
                note.extend(field.to_ne_bytes());
            }
            for part in [name, content] {
                note.extend(part);
                note.resize(note.len().next_multiple_of(4), 0);
            }
            note
        };
        let mut notes = note(b"GNU\0", 3, &[1, 2, 3, 4, 5]);
        notes.extend(note(NAME, 2, b"kind"));
        notes.extend(note(NAME, TYPE, b"here"));
        notes.extend(note(NAME, TYPE, b"next"));
        let read = |notes: &[u8]| {
            let mut found = Vec::new();
            for_each_note(notes, 4, &mut |content| found.push(content.to_vec()));
            found
        };
        assert_eq!(read(&notes), [b"here", b"next"]);
        for end in 0..notes.len() {
            let whole = read(&notes[..end]);
            assert!(whole.len() < 2, "a note that is cut off at {end} is none");
        }
    }
}
