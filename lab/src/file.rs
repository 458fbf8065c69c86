//! Atomic writing of files, and reading of files that users name.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Error of a file that could not be written.
#[derive(Debug)]
pub struct WriteError {
    /// Path of the file.
    pub path: PathBuf,
    /// The cause.
    pub error: io::Error,
}

impl WriteError {
    /// Returns what makes the error of a write to `path`.
    pub fn of(path: &Path) -> impl FnOnce(io::Error) -> WriteError {
        move |error| WriteError {
            path: path.to_owned(),
            error,
        }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: cannot write it: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for WriteError {}

/// Size limit in bytes of files that are written by hand.
pub const TEXT_BYTES_MAX: u64 = 16 << 20;
/// Size limit in bytes of results and kernels.
pub const BYTES_MAX: u64 = 1 << 30;

/// The path that stands for standard input.
pub const STANDARD_INPUT: &str = "-";

/// Reads the file at `path` if it has at most `bytes_max` bytes: a device may never end.
///
/// # Errors
/// If the file cannot be read, or is larger.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_while(File::open(path)?, bytes_max, |_| Ok(()))
}

/// Reads a text, as [`read`] does. [`STANDARD_INPUT`] can be read several times.
///
/// # Errors
/// As [`read`], or if the file is not UTF-8. A file that does not even begin as a text is not read to its end.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    static INPUT: OnceLock<Vec<u8>> = OnceLock::new();
    let what = |_| io::Error::new(ErrorKind::InvalidData, "it is no text in UTF-8");
    let bytes = match (path.to_str(), INPUT.get()) {
        (Some(STANDARD_INPUT), Some(bytes)) => bytes.clone(),
        (Some(STANDARD_INPUT), None) => {
            let bytes = read_while(io::stdin().lock(), bytes_max, check_text)?;
            INPUT.get_or_init(|| bytes).clone()
        }
        _ => read_while(File::open(path)?, bytes_max, check_text)?,
    };
    String::from_utf8(bytes).map_err(what)
}

/// Reads up to `bytes_max` bytes, and shows each piece to `check`.
fn read_while(mut from: impl Read, bytes_max: u64, check: impl Fn(&[u8]) -> io::Result<()>) -> io::Result<Vec<u8>> {
    const PIECE: u64 = 1 << 20;
    let mut bytes = Vec::new();
    loop {
        let before = bytes.len();
        if from.by_ref().take(PIECE).read_to_end(&mut bytes)? == 0 {
            return Ok(bytes);
        }
        check(&bytes[before..])?;
        if bytes.len() as u64 > bytes_max {
            let what = format!("more than {} MiB, which is no such file", bytes_max >> 20);
            return Err(io::Error::new(ErrorKind::FileTooLarge, what));
        }
    }
}

/// Refuses a piece that no text of ours has.
fn check_text(piece: &[u8]) -> io::Result<()> {
    if piece.contains(&0) {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            "it is no text: it has null bytes",
        ));
    }
    Ok(())
}

/// Gives the file at `path` a second name, so that [`write()`] does not replace its content. Returns that name, which
/// is the first free one with a number before the extension. Returns `None` without a file, or if its content is
/// `bytes`.
///
/// # Errors
/// If the file cannot be read or linked.
pub fn keep(path: &Path, bytes: &[u8]) -> Result<Option<PathBuf>, WriteError> {
    let keep = || {
        let Target::File(file) = Target::of(path)? else {
            return Ok(None);
        };
        if !file.exists() || fs::read(&file)? == bytes {
            return Ok(None);
        }
        let extension = file.extension().unwrap_or_default().to_string_lossy().into_owned();
        let names = (1_u32..).map(|number| file.with_extension(format!("{number}.{extension}")));
        for name in names {
            match fs::hard_link(&file, &name) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                linked => return linked.map(|()| Some(name)),
            }
        }
        unreachable!("fewer files than numbers")
    };
    keep().map_err(WriteError::of(path))
}

/// Destination of what is written to a path.
enum Target {
    /// A file of this name, which is replaced as a whole.
    File(PathBuf),
    /// An existing device or pipe, which is written to and not replaced.
    Stream(PathBuf),
}

impl Target {
    fn of(path: &Path) -> io::Result<Target> {
        match fs::metadata(path) {
            Ok(there) if there.is_dir() => Err(ErrorKind::IsADirectory.into()),
            // A link is kept: the file that it names is written.
            Ok(there) if there.is_file() => fs::canonicalize(path).map(Target::File),
            Ok(_) => Ok(Target::Stream(path.to_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Target::File(path.to_owned())),
            Err(error) => Err(error),
        }
    }
}

/// Returns the folder of `path`.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Returns the file that a user means by `--out PLACE`. It is `place` itself if that ends as `name` does, as in
/// `.json`, or is a device. Otherwise `place` is a folder, in which the file is called `name`: a file that is there and
/// ends otherwise is not one to replace.
pub fn placed(place: &Path, name: &Path) -> PathBuf {
    let is_device = place.exists() && !place.is_dir() && !place.is_file();
    let is_folder = place.is_dir() || place.as_os_str().to_string_lossy().ends_with('/');
    if is_device || (!is_folder && place.extension() == name.extension()) {
        place.to_owned()
    } else {
        place.join(name)
    }
}

/// Replaces the file at `path` with `bytes`. Creates missing folders. An existing file keeps its permissions, a new
/// file gets those that the user's mask allows.
///
/// # Errors
/// If the file cannot be written. Nothing is left behind then, and an existing file is unchanged.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let write = || match Target::of(path)? {
        Target::File(path) => replace(&path, bytes),
        Target::Stream(path) => OpenOptions::new().write(true).open(path)?.write_all(bytes),
    };
    write().map_err(WriteError::of(path))
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = folder(path);
    fs::create_dir_all(folder).map_err(|error| match error.kind() {
        // "File exists" for a path that should be a folder.
        ErrorKind::AlreadyExists => ErrorKind::NotADirectory.into(),
        _ => error,
    })?;
    let mut file = new_in(folder)?;
    file.write_all(bytes)?;
    // Without this a crash could leave an empty file under the new name.
    file.as_file().sync_all()?;
    if let Ok(there) = fs::metadata(path) {
        file.as_file().set_permissions(there.permissions())?;
    }
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Creates an ordinary file with a new name. It is removed unless it is persisted.
fn new_in(folder: &Path) -> io::Result<tempfile::NamedTempFile<File>> {
    let mut new = tempfile::Builder::new();
    // The default is access by the owner only. The system removes what the user's mask forbids.
    #[cfg(unix)]
    new.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    new.tempfile_in(folder)
}

/// Checks whether [`write()`] to `path` will probably succeed, so that hours of work do not end with an error about a
/// mistyped name.
///
/// # Errors
/// If something prevents writing now. Nothing is created or changed.
pub fn check(path: &Path) -> Result<(), WriteError> {
    let check = || match Target::of(path)? {
        Target::File(path) => {
            let above = folder(&path).ancestors().map(|folder| match folder {
                folder if folder.as_os_str().is_empty() => Path::new("."),
                folder => folder,
            });
            // Missing folders are created when the file is written.
            let mut above = above.skip_while(|folder| !folder.exists());
            let folder = above.next().unwrap_or(Path::new("."));
            if !folder.is_dir() {
                return Err(ErrorKind::NotADirectory.into());
            }
            new_in(folder).map(drop)
        }
        Target::Stream(path) => OpenOptions::new().write(true).open(path).map(drop),
    };
    check().map_err(WriteError::of(path))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_device_is_written_to_and_stays_one() {
        let folder = tempfile::tempdir_in(env!("OUT_DIR")).expect("a folder");
        let (full, null) = (folder.path().join("full"), folder.path().join("null"));
        symlink("/dev/full", &full).expect("writable");
        symlink("/dev/null", &null).expect("writable");
        let error = write(&full, b"x").expect_err("no space");
        assert!(error.to_string().contains("No space left"), "{error}");
        write(&null, b"x").expect("it takes all");
        for link in [&full, &null] {
            assert!(link.is_symlink(), "{}", link.display());
        }
        assert_eq!(names(folder.path()), ["full", "null"]);
    }

    #[test]
    fn a_device_without_end_is_not_read_to_its_end() {
        let error = read_text(Path::new("/dev/zero"), u64::MAX).expect_err("no text");
        assert!(error.to_string().contains("null bytes"), "{error}");
        let error = read(Path::new("/dev/zero"), TEXT_BYTES_MAX).expect_err("too much");
        assert!(error.to_string().contains("more than 16 MiB"), "{error}");
        assert!(read(Path::new("/dev/null"), 0).expect("nothing").is_empty());
        assert!(read_text(Path::new("/"), TEXT_BYTES_MAX).is_err());
    }

    #[test]
    fn what_was_there_is_kept_under_the_next_free_name() {
        let folder = tempfile::tempdir_in(env!("OUT_DIR")).expect("a folder");
        let path = folder.path().join("a.results.json");
        assert_eq!(keep(&path, b"one").expect("nothing to keep"), None);
        for (text, kept) in [
            ("one", None),
            ("one", None),
            ("two", Some("a.results.1.json")),
            ("three", Some("a.results.2.json")),
        ] {
            let name = keep(&path, text.as_bytes()).expect("writable");
            assert_eq!(name, kept.map(|kept| folder.path().join(kept)), "{text}");
            write(&path, text.as_bytes()).expect("writable");
        }
        let texts = ["a.results.1.json", "a.results.2.json", "a.results.json"];
        assert_eq!(names(folder.path()), texts);
        let texts = texts.map(|name| fs::read_to_string(folder.path().join(name)).expect("readable"));
        assert_eq!(texts, ["one", "two", "three"]);
    }

    #[test]
    fn a_link_stays_one_and_its_file_keeps_its_permissions() {
        let folder = tempfile::tempdir_in(env!("OUT_DIR")).expect("a folder");
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").expect("writable");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("ours");
        symlink("file", &link).expect("writable");
        write(&link, b"new").expect("writable");
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&file).expect("readable"), "new");
        assert_eq!(fs::metadata(&file).expect("there").mode() & 0o777, 0o640);
        assert_eq!(names(folder.path()), ["file", "link"]);
    }

    #[test]
    fn a_new_file_has_the_permissions_of_any_other() {
        let folder = tempfile::tempdir_in(env!("OUT_DIR")).expect("a folder");
        fs::write(folder.path().join("other"), "x").expect("writable");
        write(&folder.path().join("ours"), b"x").expect("writable");
        let mode = |name: &str| fs::metadata(folder.path().join(name)).expect("there").mode();
        assert_eq!(mode("ours"), mode("other"));
    }

    #[test]
    fn a_check_finds_what_stands_in_the_way_and_makes_nothing() {
        let folder = tempfile::tempdir_in(env!("OUT_DIR")).expect("a folder");
        fs::write(folder.path().join("file"), "x").expect("writable");
        check(&folder.path().join("new/er/file")).expect("folders can be made");
        check(&folder.path().join("file")).expect("it is replaced");
        check(Path::new("/dev/null")).expect("a device");
        check(Path::new("here-and-now")).expect("the folder that we are in");
        for (path, expected) in [
            ("file/x", "not a directory"),
            ("file/x/y", "not a directory"),
            (".", "directory"),
        ] {
            let error = check(&folder.path().join(path)).expect_err(path).to_string();
            assert!(error.to_lowercase().contains(expected), "{error}");
        }
        assert!(check(Path::new("/proc/x/y")).is_err(), "no file can be made there");
        assert_eq!(names(folder.path()), ["file"]);
    }
}

#[cfg(test)]
mod places {
    use super::*;

    #[test]
    fn a_place_is_a_folder_unless_it_is_a_file_or_will_be_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("there"), "").expect("writable");
        fs::write(at("there.json"), "").expect("writable");
        fs::create_dir(at("old.json")).expect("writable");
        let name = Path::new("x.results.json");
        for (place, expected) in [
            ("new", "new/x.results.json"),
            ("new.d", "new.d/x.results.json"),
            ("old.json", "old.json/x.results.json"),
            ("mine.json", "mine.json"),
            ("there", "there/x.results.json"),
            ("there.json", "there.json"),
        ] {
            assert_eq!(placed(&at(place), name), at(expected), "{place}");
        }
        let slash = format!("{}/mine.json/", folder.path().display());
        assert_eq!(placed(Path::new(&slash), name), at("mine.json/x.results.json"));
    }
}
