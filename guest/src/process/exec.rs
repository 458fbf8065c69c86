//! exec, and the files that it maps.

use core::iter;

use super::table::{Executable, Processes};
use crate::class::Event;
use crate::costs;
use crate::fs::FileId;
use crate::ids::TaskId;
use crate::machine::Machine;
use crate::sched::{self, Scheduler};

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
        self.slots[id].mapped.set(Some(*executable));
        self.map_files(sched, id);
        self.spaces.map_pages(sched, executable.pages);
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
        self.slots[owner].mapped.get().into_iter().flat_map(|executable| {
            let first = executable.library_first.0;
            let libraries = (first..first + executable.libraries).map(FileId);
            iter::once(executable.file).chain(libraries)
        })
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
        self.slots[owner].mapped.set(None);
    }
}
