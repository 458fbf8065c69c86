//! Several copies of the library in one process: plugins that are linked with the static library and hide its symbols.

#![expect(unsafe_code, reason = "calls functions of plugins")]

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use holdfast_threads::{RawBiasedRwLock, RawHybrid};
use lock_api::{RawMutex, RawRwLock};

use super::launch::{build, scratch, succeed};
use super::{compile, has_compiler, library};

#[path = "rust_copy.rs"]
mod own;

/// Links a plugin with a copy of the library.
fn plugin(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    compile(
        "copy.c",
        &path,
        &["-shared", "-fPIC", "-fvisibility=hidden", "-Wl,--exclude-libs,ALL"],
        &[library()],
    );
    path
}

/// Links the program that uses the plugins, with further arguments.
fn program(folder: &Path, arguments: &[&str], libraries: &[&Path]) -> PathBuf {
    let path = folder.join("copies");
    compile("copies.c", &path, &[&["-pthread"], arguments].concat(), libraries);
    path
}

fn keeps(program: &Path, plugins: &[&PathBuf]) {
    for rseq in ["1", "0"] {
        let tunable = format!("glibc.pthread.rseq={rseq}");
        let mut run = Command::new(program);
        assert_eq!(succeed(run.args(plugins).env("GLIBC_TUNABLES", tunable)), "kept\n");
    }
}

#[test]
fn plugins_with_a_copy_each_share_locks() {
    if !has_compiler() {
        return;
    }
    let folder = scratch();
    let (one, two) = (plugin(folder.path(), "one.so"), plugin(folder.path(), "two.so"));
    keeps(&program(folder.path(), &[], &[]), &[&one, &two]);
}

/// The program has a copy, too, which the constructors of the plugins find, and the plugins are loaded at its start.
#[test]
fn a_program_and_the_libraries_that_it_is_linked_with_share_locks() {
    if !has_compiler() {
        return;
    }
    let folder = scratch();
    let (one, two) = (plugin(folder.path(), "one.so"), plugin(folder.path(), "two.so"));
    let program = program(
        folder.path(),
        &["-DOWN", "-Wl,--no-as-needed"],
        &[library(), &one, &two],
    );
    keeps(&program, &[&one, &two]);
}

#[test]
fn a_second_version_is_refused_when_it_is_loaded() {
    if !has_compiler() {
        return;
    }
    let folder = scratch();
    let (one, two) = (plugin(folder.path(), "one.so"), plugin(folder.path(), "two.so"));
    let version = concat!("Holdfast ", env!("CARGO_PKG_VERSION")).as_bytes();
    let mut bytes = std::fs::read(&two).expect("it is linked");
    let at = bytes.windows(version.len()).position(|part| part == version);
    bytes[at.expect("a copy says its version") + version.len() - 1] ^= 1;
    std::fs::write(&two, bytes).expect("writable");
    let program = program(folder.path(), &[], &[]);
    for plugins in [[&one, &two], [&two, &one]] {
        let ran = Command::new(&program).args(plugins).output().expect("it starts");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(!ran.status.success() && ran.stdout.is_empty(), "{said}");
        assert!(said.starts_with("holdfast: two versions for C"), "{said}");
        assert!(
            plugins.iter().all(|path| said.contains(&*path.to_string_lossy())),
            "{said}"
        );
        assert!(
            said.ends_with("Link both with the shared library, or with the same version.\n"),
            "{said}"
        );
    }
}

/// The installed shared library, which is optimized as a whole, next to a copy in the program.
pub(super) fn shares_locks_with(shared: &Path) {
    let folder = scratch();
    let plugin = folder.path().join("plugin.so");
    let found = format!("-Wl,-rpath,{}", shared.parent().expect("a folder").display());
    compile("copy.c", &plugin, &["-shared", "-fPIC", &found], &[shared]);
    // The program does not export its functions, so the plugin calls those of the shared library.
    keeps(&program(folder.path(), &["-DOWN"], &[library()]), &[&plugin]);
}

/// Takes a lock if the second argument is `true`, and otherwise releases it.
type Use<L> = extern "C" fn(&L, bool);

/// How plugins in Rust, and this program, use locks.
#[derive(Clone, Copy)]
struct RustCopy {
    lock: Use<RawHybrid>,
    shared: Use<RawBiasedRwLock>,
    exclusive: Use<RawBiasedRwLock>,
}

fn load(plugin: &Path) -> RustCopy {
    let path = CString::new(plugin.as_os_str().as_bytes()).expect("a path");
    // SAFETY: the path ends with 0, and the plugin's constructors are those of the locks.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null(), "{path:?} is loaded");
    RustCopy {
        lock: find(handle, c"use_lock"),
        shared: find(handle, c"use_shared"),
        exclusive: find(handle, c"use_exclusive"),
    }
}

/// Returns a function of the plugin `handle`, which must have this type.
fn find<L>(handle: *mut libc::c_void, name: &CStr) -> Use<L> {
    // SAFETY: the plugin is loaded, and the name ends with 0.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    assert!(!address.is_null(), "{name:?}");
    // SAFETY: the function of `rust_copy.rs` with this name has this type.
    unsafe { std::mem::transmute::<*mut libc::c_void, Use<L>>(address) }
}

/// A lock is taken by one copy and released by another one. Readers with a bias announce themselves on the same line.
#[test]
fn plugins_in_rust_share_locks_with_each_other_and_the_program() {
    const ROUNDS: usize = 4000;
    let (folder, built) = (scratch(), build(&["--example", "rust_copy"], "librust_copy.so"));
    let [one, two] = ["one.so", "two.so"].map(|name| {
        let plugin = folder.path().join(name);
        std::fs::copy(&built, &plugin).expect("it has been built");
        load(&plugin)
    });
    let own = RustCopy {
        lock: own::use_lock,
        shared: own::use_shared,
        exclusive: own::use_exclusive,
    };
    let copies = [one, own, two];
    let (lock, rwlock) = (RawHybrid::INIT, RawBiasedRwLock::INIT);
    let (lock, rwlock) = (&lock, &rwlock);
    let (count, written) = (&AtomicU32::new(0), &AtomicU32::new(0));
    thread::scope(|scope| {
        for me in 0..4 {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let (taker, other) = (copies[(me + round) % 3], copies[(me + round / 3) % 3]);
                    (taker.lock)(lock, true);
                    let before = count.load(Relaxed);
                    if round % 256 == 0 {
                        thread::sleep(Duration::from_micros(300));
                    }
                    count.store(before + 1, Relaxed);
                    (other.lock)(lock, false);
                    if round % 1000 == 999 {
                        (other.exclusive)(rwlock, true);
                        written.store(written.load(Relaxed) + 1, Relaxed);
                        (taker.exclusive)(rwlock, false);
                    } else {
                        (taker.shared)(rwlock, true);
                        let before = written.load(Relaxed);
                        std::hint::spin_loop();
                        assert_eq!(written.load(Relaxed), before);
                        (other.shared)(rwlock, false);
                    }
                }
            });
        }
    });
    assert_eq!((count.load(Relaxed), written.load(Relaxed)), (4 * ROUNDS as u32, 16));
}
