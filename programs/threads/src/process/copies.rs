//! The copies of this code in a process: how they find each other.

#![expect(unsafe_code, reason = "reads the notes that the dynamic linker has mapped")]

use core::arch::asm;
use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicPtr};

use super::{OWN, Process};

#[cfg(target_pointer_width = "32")]
use libc::Elf32_Phdr as Segment;
#[cfg(target_pointer_width = "64")]
use libc::Elf64_Phdr as Segment;

/// What a copy says of itself to the others. The first three fields are the same in all versions.
#[repr(C)]
struct Copy {
    version: [u8; 24],
    /// The size of [`Process`].
    bytes: u32,
    /// Whether the copy is in a library for C.
    for_c: AtomicBool,
    /// The state that this copy uses, or null if it has not chosen yet.
    chosen: AtomicPtr<Process>,
}

static HERE: Copy = Copy {
    version: padded(concat!("Holdfast ", env!("CARGO_PKG_VERSION"))),
    bytes: size_of::<Process>() as u32,
    for_c: AtomicBool::new(false),
    chosen: AtomicPtr::new(ptr::null_mut()),
};

const fn padded(text: &str) -> [u8; 24] {
    let (mut padded, mut at) = ([0; 24], 0);
    while at < text.len() {
        padded[at] = text.as_bytes()[at];
        at += 1;
    }
    padded
}

impl Copy {
    fn is_same_version(&self) -> bool {
        (self.version, self.bytes) == (HERE.version, HERE.bytes)
    }
}

/// Returns the state of this process.
#[inline]
pub(crate) fn process() -> &'static Process {
    // ORDERING: Acquire; pairs with the Release of the thread that has chosen, in this copy or another one.
    let chosen = HERE.chosen.load(Acquire);
    // SAFETY: not null, so it is the state of this copy or of another one of the same version: **Same layout**. That
    // copy **stays loaded**.
    unsafe { chosen.as_ref() }.unwrap_or_else(|| choose(&OWN))
}

/// Chooses a state, unless this copy has one. Returns the one that it has.
#[cold]
fn choose(process: &'static Process) -> &'static Process {
    let wanted = ptr::from_ref(process).cast_mut();
    // ORDERING: AcqRel; the Release pairs with the Acquire in `process` and in `look`.
    match HERE.chosen.compare_exchange(ptr::null_mut(), wanted, AcqRel, Acquire) {
        Ok(_) => process,
        // SAFETY: as in `process`.
        Err(chosen) => unsafe { &*chosen },
    }
}

/// Chooses the state of this process: **One state**. Called when the code is loaded. Returns whether it is this copy's.
pub(crate) fn meet() -> bool {
    note();
    let mut wanted = &OWN;
    for_each_copy(&mut |_, copy| {
        // ORDERING: Acquire; pairs with the Release in `choose`.
        if !ptr::eq(copy, &HERE)
            && copy.is_same_version()
            // SAFETY: as in `process`.
            && let Some(process) = unsafe { copy.chosen.load(Acquire).as_ref() }
        {
            wanted = process;
        }
    });
    let chosen = choose(wanted);
    if !ptr::eq(chosen, wanted) {
        refuse(&[
            b"this process has two copies of its code that threads waited in before they met. \
            Link both of their users with the shared library, or load the second one later.\n",
        ]);
    }
    chosen.is_own()
}

/// Ends the process with a message if it contains this code for C in another version: a C lock is the same type in all
/// versions, and would be broken. The C library calls this when it is loaded.
#[doc(hidden)]
pub fn refuse_other_versions() {
    // ORDERING: Relaxed, here and below; the dynamic linker loads one object at a time.
    HERE.for_c.store(true, Relaxed);
    let mut mine = c"".as_ptr();
    for_each_copy(&mut |object, copy| {
        if ptr::eq(copy, &HERE) {
            mine = object.as_ptr();
        }
    });
    // SAFETY: an object's name, which stays: this code belongs to the object.
    let mine = unsafe { CStr::from_ptr(mine) };
    for_each_copy(&mut |object, copy| {
        if copy.for_c.load(Relaxed) && !copy.is_same_version() {
            refuse(&[
                b"two versions for C are in this process, and a lock that both use would be broken: ",
                text(&copy.version),
                b" in ",
                name(object),
                b" and ",
                text(&HERE.version),
                b" in ",
                name(mine),
                b". Link both with the shared library, or with the same version.\n",
            ]);
        }
    });
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

/// The name of the note, with the 0 that ends it.
const NAME: &[u8; 9] = b"Holdfast\0";
/// The type of the note.
const TYPE: u32 = 1;

/// Puts the note into the object file. Its content is the distance from there to [`HERE`], in 4 bytes.
#[inline(never)]
fn note() {
    // SAFETY: there are no instructions. Each instance of the code makes a note of its own.
    unsafe {
        asm!(
            ".pushsection .note.holdfast, \"a\", %note",
            ".balign 4",
            ".long 9, 4, 1",
            ".asciz \"Holdfast\"",
            ".balign 4",
            "7:",
            ".long {here} - 7b",
            ".popsection",
            here = sym HERE,
            options(nomem, nostack, preserves_flags),
        );
    }
}

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
        // A note with a name of ours is at a place that `note` has made.
        for_each_note(notes, segment.p_align as usize, &mut |content| {
            let Some(distance) = content.first_chunk().copied().map(i32::from_ne_bytes) else {
                return;
            };
            let copy =
                ptr::with_exposed_provenance::<Copy>(content.as_ptr().addr().wrapping_add_signed(distance as isize));
            // SAFETY: the linker has written the distance to a static value of this type, whose first fields are the
            // same in all versions.
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

    #[cfg(not(miri))]
    #[test]
    fn this_copy_finds_itself_and_uses_its_own_state() {
        let mut here = 0;
        for_each_copy(&mut |_, copy| here += u32::from(ptr::eq(copy, &HERE)));
        assert!(here > 0);
        assert!(process().is_own());
    }
}
