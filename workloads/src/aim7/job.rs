//! The system calls of each kind of job.

use holdfast_guest::{FileId, Machine, Os};

use super::Disk;
use super::mix::{CREATED, DEPTH, DIRECTORIES, FILE_PAGES, Job, LINKS, SEARCHED, SIGMA, SYNC_WRITES};
use crate::stream::Stream;

/// Mean user time of a job. Calibrated: with 2 disks and PV ticket locks, XFS on the westmere-ex-8 profile completes
/// the published number of jobs.
const USER_NS: u64 = 160_000;

impl Disk {
    /// Does job `number` of `user`'s list.
    pub(super) fn job<M: Machine>(&self, os: &Os<M>, user: u32, number: u32, job: Job) {
        let mut time = Stream::new(os.seed("aim7.time"), user << 12 ^ number);
        let user_ns = time.time(USER_NS, SIGMA);
        let (directory, file, copy) = (self.directory_of(user), self.file_of(user, 0), self.file_of(user, 1));
        os.user(user_ns / 2);
        match job {
            Job::RandomRead | Job::Read => temporary(os, directory, file, || repeat(FILE_PAGES, || os.read(1))),
            Job::RandomWrite => temporary(os, directory, file, || repeat(FILE_PAGES, || os.overwrite(file, 1))),
            Job::Write => temporary(os, directory, file, || {}),
            Job::Copy => temporary(os, directory, file, || copy_to(os, directory, copy, || {})),
            Job::SyncRandomWrite => temporary(os, directory, file, || {
                repeat(SYNC_WRITES, || {
                    os.overwrite(file, FILE_PAGES / SYNC_WRITES);
                    os.sync(file, FILE_PAGES / SYNC_WRITES);
                });
            }),
            Job::SyncWrite => temporary(os, directory, file, || sync(os, file)),
            Job::SyncCopy => temporary(os, directory, file, || {
                copy_to(os, directory, copy, || sync(os, copy));
            }),
            Job::Search => repeat(SEARCHED, || os.stat(directory, DEPTH)),
            Job::CreateClose => repeat(CREATED, || {
                os.create(directory, file, DEPTH);
                os.close(file);
                os.unlink(directory, file, DEPTH);
            }),
            // Each name is added and removed.
            Job::Link => temporary(os, directory, file, || {
                repeat(2 * LINKS, || os.link(directory, file, DEPTH));
            }),
            Job::Directories => repeat(DIRECTORIES, || {
                os.create(directory, file, DEPTH);
                os.open(file, DEPTH);
                os.status();
                os.close(file);
                os.close(file);
                os.unlink(directory, file, DEPTH);
            }),
        }
        os.user(user_ns - user_ns / 2);
    }
}

/// Writes a new file, does `work` with it, and removes it.
fn temporary<M: Machine>(os: &Os<M>, directory: FileId, file: FileId, work: impl Fn()) {
    os.create(directory, file, DEPTH);
    repeat(FILE_PAGES, || os.write(file, 1));
    work();
    os.close(file);
    os.unlink(directory, file, DEPTH);
}

/// Copies the open file to a new one, does `work` with the copy, and removes it.
fn copy_to<M: Machine>(os: &Os<M>, directory: FileId, copy: FileId, work: impl Fn()) {
    os.create(directory, copy, DEPTH);
    repeat(FILE_PAGES, || {
        os.read(1);
        os.write(copy, 1);
    });
    work();
    os.close(copy);
    os.unlink(directory, copy, DEPTH);
}

/// Puts the file on the disk, once for each write of a synchronous job.
fn sync<M: Machine>(os: &Os<M>, file: FileId) {
    repeat(SYNC_WRITES, || os.sync(file, FILE_PAGES / SYNC_WRITES));
}

fn repeat(times: u32, call: impl Fn()) {
    (0..times).for_each(|_| call());
}
