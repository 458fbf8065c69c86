//! The system calls of each kind of job.

use holdfast_guest::{FileId, Machine, Os};

use super::Disk;
use super::mix::{CREATED, DEPTH, DIRECTORIES, FILE_PAGES, Job, LINKS, SEARCHED, SIGMA, SYNC_WRITES};
use crate::stream::Stream;

impl Disk {
    /// Does job `number` of `user`'s list.
    pub(super) fn job<M: Machine>(&self, os: &Os<M>, user: u32, number: u32, job: Job) {
        // With lists of 2^12 jobs and more, a user's last jobs share streams with the next user's first ones, which
        // does no harm.
        let mut time = Stream::new(os.seed("aim7.time"), user << 12 ^ number);
        let user_ns = time.time(self.parameters.user_ns, SIGMA);
        let (directory, file, copy) = (self.directory_of(user), self.file_of(user, 0), self.file_of(user, 1));
        os.user(user_ns / 2);
        match job {
            Job::RandomRead | Job::Read => temporary(os, directory, file, |os| read(os, FILE_PAGES)),
            Job::RandomWrite => temporary(os, directory, file, |os| overwrite(os, file, FILE_PAGES)),
            Job::Write => temporary(os, directory, file, |_| {}),
            Job::Copy => temporary(os, directory, file, |os| copy_to(os, directory, copy, |_| {})),
            Job::SyncRandomWrite => temporary(os, directory, file, |os| {
                for _ in 0..SYNC_WRITES {
                    os.overwrite(file, FILE_PAGES / SYNC_WRITES);
                    os.sync(file, FILE_PAGES / SYNC_WRITES);
                }
            }),
            Job::SyncWrite => temporary(os, directory, file, |os| sync(os, file)),
            Job::SyncCopy => temporary(os, directory, file, |os| {
                copy_to(os, directory, copy, |os| sync(os, copy));
            }),
            Job::Search => {
                for _ in 0..SEARCHED {
                    os.stat(directory, DEPTH);
                }
            }
            Job::CreateClose => {
                for _ in 0..CREATED {
                    os.create(directory, file, DEPTH);
                    os.close(file);
                    os.unlink(directory, file, DEPTH);
                }
            }
            Job::Link => temporary(os, directory, file, |os| {
                // Each name is added and removed.
                for _ in 0..2 * LINKS {
                    os.link(directory, file, DEPTH);
                }
            }),
            Job::Directories => {
                for _ in 0..DIRECTORIES {
                    os.create(directory, file, DEPTH);
                    os.open(file, DEPTH);
                    os.status();
                    os.close(file);
                    os.close(file);
                    os.unlink(directory, file, DEPTH);
                }
            }
        }
        os.user(user_ns - user_ns / 2);
    }
}

/// Writes a new file, does `work` with it, and removes it.
fn temporary<M: Machine>(os: &Os<M>, directory: FileId, file: FileId, work: impl Fn(&Os<M>)) {
    os.create(directory, file, DEPTH);
    write(os, file);
    work(os);
    os.close(file);
    os.unlink(directory, file, DEPTH);
}

/// Copies the open file to a new one, does `work` with the copy, and removes it.
fn copy_to<M: Machine>(os: &Os<M>, directory: FileId, copy: FileId, work: impl Fn(&Os<M>)) {
    os.create(directory, copy, DEPTH);
    for _ in 0..FILE_PAGES {
        os.read(1);
        os.write(copy, 1);
    }
    work(os);
    os.close(copy);
    os.unlink(directory, copy, DEPTH);
}

fn write<M: Machine>(os: &Os<M>, file: FileId) {
    for _ in 0..FILE_PAGES {
        os.write(file, 1);
    }
}

fn read<M: Machine>(os: &Os<M>, pages: u32) {
    for _ in 0..pages {
        os.read(1);
    }
}

fn overwrite<M: Machine>(os: &Os<M>, file: FileId, pages: u32) {
    for _ in 0..pages {
        os.overwrite(file, 1);
    }
}

/// Puts the file on the disk, once for each write of a synchronous job.
fn sync<M: Machine>(os: &Os<M>, file: FileId) {
    for _ in 0..SYNC_WRITES {
        os.sync(file, FILE_PAGES / SYNC_WRITES);
    }
}
