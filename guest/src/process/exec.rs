//! exec, and the files that it maps.

use super::table::{NO_FILE, Processes};
use crate::class::Event;
use crate::costs;
use crate::fs::FileId;
use crate::ids::TaskId;
use crate::machine::Machine;
use crate::sched::{self, Scheduler};

/// A program to execute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Executable {
    /// The program's file.
    pub file: FileId,
    /// The first shared library's file. The others follow.
    pub library_first: FileId,
    /// The number of libraries.
    pub libraries: u32,
    /// Pages that exec itself touches: arguments, stack, bss.
    pub pages: u32,
}

/// Mappings per executable or library: text, read-only data, data, bss.
const SEGMENTS: u32 = 4;

impl<M: Machine> Processes<M> {
    /// Makes the caller's task execute another program: tears down or returns its address space, and maps a new one.
    pub(crate) fn exec(&self, sched: &Scheduler<M>, executable: &Executable) {
        sched::move_for_exec(sched);
        let on = sched.on_cpu();
        on.local.count(Event::Execs);
        let id = on.current();
        self.files.open_for_exec(&on, executable.file);
        on.work(costs::EXEC);
        sched.memory.slab(&on, 12);
        self.leave_space(sched, id);
        let Executable {
            file,
            library_first,
            libraries,
            pages,
        } = *executable;
        for (to, value) in self.slots[id]
            .mapped_files
            .iter()
            .zip([file.0, library_first.0, libraries])
        {
            to.set(value);
        }
        self.map_files(sched, id);
        self.spaces.map_pages(sched, pages);
    }

    /// Ends the task's use of its old address space, and loads its own.
    fn leave_space(&self, sched: &Scheduler<M>, id: TaskId) {
        if sched.tlbs.space_of(id) == id {
            self.unmap_files(sched, id);
            self.spaces.release_space(sched, id);
            return;
        }
        sched.tlbs.set_space(id, id);
        let on = sched.on_cpu();
        sched.tlbs.load(&on, id);
        self.slots[id].release_parent(&on);
    }

    fn files_of(&self, owner: TaskId) -> impl Iterator<Item = FileId> + use<M> {
        let [file, first, count] = [0, 1, 2].map(|index| self.slots[owner].mapped_files[index].get());
        let executable = (file != NO_FILE).then_some(file);
        executable.into_iter().chain(first..first + count).map(FileId)
    }

    /// Links the mappings of `owner`'s files to the files.
    pub(super) fn map_files(&self, sched: &Scheduler<M>, owner: TaskId) {
        for file in self.files_of(owner) {
            sched.on_cpu().work(costs::MAP_VMA * u64::from(SEGMENTS));
            sched.memory.slab(&sched.on_cpu(), SEGMENTS);
            self.files.link_mappings(sched, file, SEGMENTS);
        }
    }

    /// Unlinks the mappings of `owner`'s files.
    pub(super) fn unmap_files(&self, sched: &Scheduler<M>, owner: TaskId) {
        for file in self.files_of(owner) {
            sched.memory.slab(&sched.on_cpu(), SEGMENTS);
            self.files.link_mappings(sched, file, SEGMENTS);
        }
        let mapped = &self.slots[owner].mapped_files;
        mapped[0].set(NO_FILE);
        mapped[2].set(0);
    }
}
