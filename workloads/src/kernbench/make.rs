//! make: the top make, and one for each directory.

use holdfast_guest::{FileId, Fork, Machine, Os, Start, Touch};

use super::mix::{DEPTH, executable, faults, files};
use super::{Build, JOB_SERVER, role};

/// The job slots that a make holds.
struct Slots {
    own_is_free: bool,
    from_server: u32,
}

impl Slots {
    const NEW: Slots = Slots {
        own_is_free: true,
        from_server: 0,
    };

    /// Takes a slot, and reaps children that exit before it gets one. GNU make blocks in the pipe's read, and SIGCHLD
    /// interrupts it.
    fn take<M: Machine>(&mut self, os: &Os<M>) {
        loop {
            while os.try_wait().is_some() {
                self.give(os);
            }
            if self.own_is_free {
                self.own_is_free = false;
                return;
            }
            if os.read_pipe(JOB_SERVER, 1) == Some(1) {
                self.from_server += 1;
                return;
            }
        }
    }

    /// Returns the slot of a job that is done.
    fn give<M: Machine>(&mut self, os: &Os<M>) {
        if self.from_server > 0 {
            self.from_server -= 1;
            os.write_pipe(JOB_SERVER, 1);
        } else {
            self.own_is_free = true;
        }
    }

    /// Waits for all jobs.
    fn drain<M: Machine>(&mut self, os: &Os<M>) {
        while os.wait().is_some() {
            self.give(os);
        }
    }
}

impl<M: Machine> Build<M> {
    /// Runs the whole build, once or forever.
    pub(super) fn top(&self, os: &Os<M>) {
        os.wait_for_cpus();
        if self.cold {
            self.mix.on_disk().for_each(|file| os.drop_cached(file));
        }
        os.begin();
        self.build(os);
        os.done(None);
        if self.repeat {
            loop {
                self.build(os);
            }
        }
    }

    fn build(&self, os: &Os<M>) {
        os.exec(&executable(files::MAKE));
        os.handle_child_signals();
        os.open_pipe(JOB_SERVER, 1);
        if self.jobs > 1 {
            os.write_pipe(JOB_SERVER, self.jobs - 1);
        }
        os.user_touching(self.mix.prepare_ns(), faults::DIRECTORY);
        let mut slots = Slots::NEW;
        for directory in 0..self.mix.directories {
            slots.take(os);
            os.fork(Fork::Borrow, Start::new(role::DIRECTORY, directory));
        }
        slots.drain(os);
        self.final_link(os);
    }

    fn final_link(&self, os: &Os<M>) {
        for directory in 0..self.mix.directories {
            os.open(self.object_of(directory), DEPTH);
            os.close(self.object_of(directory));
        }
        os.user_touching(self.mix.final_ns(), faults::LINKER);
    }

    /// The directory's object. It shares the file of the first unit's object.
    fn object_of(&self, directory: u32) -> FileId {
        FileId(files::UNITS + self.mix.units_of(directory).start % files::UNIT_COUNT)
    }

    /// Runs one directory's make: reads the rules, compiles, links.
    pub(super) fn directory(&self, os: &Os<M>, directory: u32) {
        os.exec(&executable(files::MAKE));
        os.handle_child_signals();
        for script in 0..files::SCRIPT_COUNT {
            let script = FileId(files::SCRIPTS + script);
            os.open(script, DEPTH);
            os.read_file(script, 4);
            os.close(script);
        }
        let units = self.mix.units_of(directory);
        let count = units.len() as u64;
        let time = self.mix.directory_ns(directory);
        // Half of make's time is for reading the rules, the rest is divided among the units.
        os.user_touching(time / 2, faults::DIRECTORY);
        let mut slots = Slots::NEW;
        for unit in units {
            let source = FileId(files::UNITS + unit % files::UNIT_COUNT);
            for _ in 0..8 {
                os.open_missing(DEPTH);
            }
            os.stat(source, DEPTH);
            os.user_touching(time / 2 / count.max(1), Touch::anonymous(8));
            slots.take(os);
            os.fork(Fork::Borrow, Start::new(role::SHELL, unit));
        }
        slots.drain(os);
        os.fork(Fork::Borrow, Start::new(role::LINKER, directory));
        os.wait();
    }

    /// Runs `ld -r` of a directory.
    pub(super) fn linker(&self, os: &Os<M>, directory: u32) {
        os.exec(&executable(files::LINKER));
        let units = self.mix.units_of(directory);
        let pages = 12 * units.len() as u32;
        for unit in units {
            let object = FileId(files::UNITS + unit % files::UNIT_COUNT);
            os.open(object, DEPTH);
            os.read(12);
            os.close(object);
        }
        os.user_touching(self.mix.linker_ns(directory), faults::LINKER);
        let output = self.object_of(directory);
        os.write(output, pages);
    }
}
