//! A tracing instance: buffers of the kernel that are separate from other tracing (kernel documentation, trace/ftrace,
//! "Instances").

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::machine::{Machine, RecordError};

/// Beginning of the names of instances. The process ID follows it.
const NAME: &str = "holdfast-";
/// Largest buffer of a CPU in KiB.
const BUFFER_KIB_MAX: u64 = 8 << 10;
/// Smallest buffer of a CPU in KiB.
const BUFFER_KIB_MIN: u64 = 64;
/// `O_NONBLOCK` of Linux on x86-64 and arm64 (include/uapi/asm-generic/fcntl.h).
const NONBLOCK: i32 = 0o4000;
/// Limit on CPU numbers: the maximum of Linux on x86-64.
const CPUS_MAX: u32 = 8192;
/// Limit on the size of a file of the instance in bytes.
const BYTES_MAX: usize = 1 << 20;
/// Length in bytes of a read of such a file.
const PIECE: usize = 64 << 10;

/// Returns the folder of the tracing file system below `root`.
///
/// # Errors
/// If it cannot be used: what is lacking.
pub(super) fn tracefs(root: &Path) -> Result<PathBuf, RecordError> {
    let mut lacks = None;
    for place in ["sys/kernel/tracing", "sys/kernel/debug/tracing"] {
        let folder = root.join(place);
        match fs::read_dir(folder.join("instances")) {
            Ok(_) => return Ok(folder),
            Err(error) => {
                let lack = match error.kind() {
                    ErrorKind::PermissionDenied => {
                        format!("root's rights: /{place} cannot be read ({error}); try sudo holdfast record")
                    }
                    _ if folder.is_dir() => format!(
                        "a mounted tracing file system: /{place} is empty; to mount it: mount -t tracefs nodev \
                         /sys/kernel/tracing"
                    ),
                    _ => "a kernel with tracepoints: there is no /sys/kernel/tracing (CONFIG_FTRACE)".to_owned(),
                };
                lacks = lacks.or(Some(lack));
            }
        }
    }
    Err(RecordError::Lacks(lacks.unwrap_or_default()))
}

/// Returns a sentence about each instance whose process no longer exists.
pub(super) fn left_over(root: &Path, tracefs: &Path) -> Vec<String> {
    let entries = fs::read_dir(tracefs.join("instances")).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let dead = paths.iter().filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let process = name.strip_prefix(NAME).and_then(|process| process.parse::<u32>().ok());
        process.is_some_and(|process| !root.join(format!("proc/{process}")).exists())
    });
    let say = |path: &PathBuf| {
        let path = path.display();
        format!("{path} is left by a recording that was killed, and still records; to remove it: rmdir {path}")
    };
    dead.map(say).collect()
}

/// A tracing instance. It is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Instance {
    folder: PathBuf,
    remove: fn(&Path) -> std::io::Result<()>,
    /// The pages of each CPU. `None` after [`Instance::close`]: the kernel removes no instance with open files.
    pipes: Mutex<Option<Vec<File>>>,
}

impl Instance {
    /// Makes an instance that does not record yet.
    pub(super) fn create(machine: Machine<'_>, tracefs: &Path) -> Result<Instance, RecordError> {
        let folder = tracefs.join("instances").join(format!("{NAME}{}", std::process::id()));
        (machine.make)(&folder).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => RecordError::Lacks(format!(
                "the right to make {} ({error}): root, and a kernel that is not locked down",
                folder.display()
            )),
            ErrorKind::ReadOnlyFilesystem => RecordError::Lacks(format!(
                "a tracing file system for writing ({error}): a container does not have one"
            )),
            _ => RecordError::Failed(folder.clone(), error),
        })?;
        let instance = Instance {
            folder,
            remove: machine.remove,
            pipes: Mutex::new(Some(Vec::new())),
        };
        instance.set("tracing_on", "0")?;
        Ok(instance)
    }

    fn pipes(&self) -> MutexGuard<'_, Option<Vec<File>>> {
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes `value` to one of the instance's files.
    pub(super) fn set(&self, file: &str, value: &str) -> Result<(), RecordError> {
        let path = self.folder.join(file);
        let write = || {
            let mut file = OpenOptions::new().write(true).open(&path)?;
            std::io::Write::write_all(&mut file, value.as_bytes())
        };
        write().map_err(RecordError::of(&path))
    }

    /// Reads one of the instance's files, up to a limit on its size.
    pub(super) fn get(&self, file: &str) -> Result<Vec<u8>, RecordError> {
        let path = self.folder.join(file);
        let read = || {
            let mut from = File::open(&path)?;
            let mut content = Vec::new();
            // Some files give their content to the first read only, up to its length: `events/header_page`.
            let mut piece = vec![0; PIECE];
            loop {
                match from.read(&mut piece)? {
                    0 => return Ok(content),
                    read => content.extend(&piece[..read]),
                }
                if content.len() > BYTES_MAX {
                    return Err(ErrorKind::FileTooLarge.into());
                }
            }
        };
        read().map_err(RecordError::of(&path))
    }

    /// Returns the names in a folder of the instance, sorted. There are none if it cannot be read.
    pub(super) fn list(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.folder.join(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Sets the first of `clocks` that the kernel has. Returns its name.
    pub(super) fn set_clock(&self, clocks: &[&str]) -> Result<String, RecordError> {
        let known = self.get("trace_clock")?;
        let known = String::from_utf8_lossy(&known).into_owned();
        let has = |clock: &&&str| {
            known
                .split_whitespace()
                .any(|word| word.trim_matches(['[', ']']) == **clock)
        };
        let clock = clocks
            .iter()
            .find(has)
            .ok_or_else(|| RecordError::Lacks(format!("a clock among {clocks:?}: the kernel has {known:?}")))?;
        self.set("trace_clock", clock)?;
        Ok((*clock).to_owned())
    }

    /// Sets the size of the buffers: all together at most an eighth of the memory that is available.
    pub(super) fn size(&self, root: &Path) -> Result<(), RecordError> {
        let memory = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
        let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
        let available = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        let cpus = self.cpus().len().max(1) as u64;
        let share = available.map_or(BUFFER_KIB_MAX, |kib| kib / 8 / cpus);
        let kib = share.clamp(BUFFER_KIB_MIN, BUFFER_KIB_MAX);
        self.set("buffer_size_kb", &kib.to_string())
    }

    /// Enables events. Returns those of `wanted` that the kernel lacks.
    ///
    /// # Errors
    /// If one of `required` is lacking.
    pub(super) fn enable(&self, required: &[&str], wanted: &[&str]) -> Result<Vec<String>, RecordError> {
        let mut missing = Vec::new();
        for event in required.iter().chain(wanted) {
            match self.set(&format!("events/{event}/enable"), "1") {
                Ok(()) => {}
                Err(RecordError::Failed(_, error)) if error.kind() == ErrorKind::NotFound => {
                    if required.contains(event) {
                        return Err(RecordError::Lacks(format!("the kernel's event {event}")));
                    }
                    missing.push((*event).to_owned());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(missing)
    }

    /// Returns the numbers of the CPUs with a buffer, in order.
    fn cpus(&self) -> Vec<u32> {
        let names = self.list("per_cpu");
        let numbers = names.iter().filter_map(|name| name.strip_prefix("cpu")?.parse().ok());
        let mut numbers: Vec<u32> = numbers.filter(|number| *number < CPUS_MAX).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Opens the buffers of all CPUs. Returns the CPUs' numbers.
    pub(super) fn open(&self) -> Result<Vec<u32>, RecordError> {
        let cpus = self.cpus();
        let mut pipes = Vec::new();
        for cpu in &cpus {
            let path = self.folder.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
            let file = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(&path);
            pipes.push(file.map_err(RecordError::of(&path))?);
        }
        *self.pipes() = Some(pipes);
        Ok(cpus)
    }

    /// Reads pages of `page` bytes from the buffer of the CPU at `index`, as many as there are and as `buffer` holds.
    /// Returns their length in bytes. A page that the kernel cuts short is padded with zeros.
    pub(super) fn read(&self, index: usize, page: usize, buffer: &mut [u8]) -> Result<usize, RecordError> {
        let mut pipes = self.pipes();
        let Some(pipe) = pipes.as_mut().and_then(|pipes| pipes.get_mut(index)) else {
            return Ok(0);
        };
        let mut filled = 0;
        for page in buffer.chunks_exact_mut(page) {
            match pipe.read(page) {
                Ok(0) => break,
                Ok(read) => page[read..].fill(0),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => break,
                Err(error) => return Err(RecordError::of(&self.folder)(error)),
            }
            filled += page.len();
        }
        Ok(filled)
    }

    /// Returns how many events of `cpu` were read, and how many the kernel lost.
    pub(super) fn counts(&self, cpu: u32) -> (u64, u64) {
        let text = self.get(&format!("per_cpu/cpu{cpu}/stats")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let figure = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        let lost = ["overrun", "commit overrun", "dropped events"].map(figure);
        (figure("read events"), lost.into_iter().fold(0, u64::saturating_add))
    }

    /// Returns the names of threads that the kernel has kept. The file exists once, outside of instances.
    pub(super) fn command_names(&self) -> Vec<u8> {
        self.get("../../saved_cmdlines").unwrap_or_default()
    }

    /// Ends the recording and removes the instance. Does nothing the second time.
    ///
    /// # Errors
    /// If the kernel keeps the instance, since another program reads it.
    pub(super) fn close(&self) -> Result<(), RecordError> {
        if self.pipes().take().is_none() {
            return Ok(());
        }
        let _ = self.set("tracing_on", "0");
        let mut tries = 0;
        loop {
            match (self.remove)(&self.folder) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy && tries < 20 => {
                    tries += 1;
                    thread::sleep(Duration::from_millis(10));
                }
                Err(error) => {
                    let how = format!("{error}; to remove it: rmdir {}", self.folder.display());
                    let error = std::io::Error::new(error.kind(), how);
                    return Err(RecordError::of(&self.folder)(error));
                }
                Ok(()) => return Ok(()),
            }
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.close();
    }
}
