//! The system calls of each kind of job.

use holdfast_guest::{FileId, Machine, Os};

use super::Disk;
use super::mix::{BLOCKS, BLOCKS_OF_PAGE, CREATED, DEPTH, Job, SEARCHED, SIGMA};
use crate::stream::Stream;

/// Mean user time of a job. Calibrated: with PV ticket locks, XFS on the westmere-ex-8 profile completes the published
/// number of jobs.
const USER_NS: u64 = 308_000;

/// What a job works on: the files of one disk.
struct On<'a, M: Machine> {
    os: &'a Os<M>,
    /// The root of the disk.
    root: FileId,
    /// The directory that searches work in.
    searched: FileId,
    /// The common file.
    common: FileId,
    /// The user's own.
    own: FileId,
}

impl Disk {
    /// Does job `number` of `user`'s list, on disk number `disk`.
    pub(super) fn job<M: Machine>(&self, os: &Os<M>, user: u32, number: u32, disk: u32, job: Job) {
        let mut time = Stream::new(os.seed("aim7.time"), user << 12 ^ number);
        let user_ns = time.time(USER_NS, SIGMA);
        os.user(user_ns / 2);
        let on = On {
            os,
            root: self.root(disk),
            searched: self.searched(disk),
            common: self.common(disk),
            own: self.own(disk, user),
        };
        on.job(job);
        os.user(user_ns - user_ns / 2);
    }
}

impl<M: Machine> On<'_, M> {
    fn job(&self, job: Job) {
        match job {
            Job::RandomRead | Job::Read => self.file(BLOCKS, || repeat(BLOCKS, || self.os.read(1))),
            Job::RandomWrite => self.file(BLOCKS, || repeat(BLOCKS, || self.os.overwrite(self.own, 1))),
            Job::DirectRandomRead | Job::DirectRandomWrite => {
                self.file(BLOCKS, || repeat(BLOCKS, || self.os.direct(self.own)));
            }
            Job::Write => self.created(|| self.append(BLOCKS, |_| {})),
            Job::CreateOnly => self.created(|| {}),
            Job::SharedRead => self.reading(|| repeat(BLOCKS, || self.os.read(1))),
            Job::DirectSharedRead => self.reading(|| repeat(BLOCKS, || self.os.direct(self.common))),
            Job::Copy => self.copied(BLOCKS, |_| {}),
            Job::OpenAndCreateOnly => self.copied(0, |_| {}),
            Job::SyncCopy => self.copied(BLOCKS / 2, |on| on.os.sync(on.own, 1)),
            Job::SyncWrite => self.created(|| self.append(BLOCKS / 2, |on| on.os.sync(on.own, 1))),
            Job::SyncRandomWrite => self.file(BLOCKS / 2, || repeat(BLOCKS / 2, || self.rewrite())),
            Job::SyncUpdate => self.file(BLOCKS, || {
                repeat(BLOCKS / 2, || {
                    self.os.read(1);
                    self.rewrite();
                });
            }),
            Job::Search => self.search(),
        }
    }

    /// Creates the own file, does `work` with it, and removes it.
    fn created(&self, work: impl FnOnce()) {
        self.os.create(self.root, self.own, DEPTH);
        work();
        self.os.unlink(self.root, self.own, DEPTH);
        self.os.close(self.own);
    }

    /// Writes an own file of `blocks` blocks, opens it again, does `work` with it, and removes it.
    fn file(&self, blocks: u32, work: impl FnOnce()) {
        self.created(|| {
            self.append(blocks, |_| {});
            self.os.close(self.own);
            self.os.open(self.own, DEPTH);
            work();
        });
    }

    /// Opens the common file, does `work` with it, and closes it.
    fn reading(&self, work: impl FnOnce()) {
        self.os.open(self.common, DEPTH);
        work();
        self.os.close(self.common);
    }

    /// Copies `blocks` blocks of the common file to an own one, and does `after` each.
    fn copied(&self, blocks: u32, after: impl Fn(&Self)) {
        self.reading(|| {
            self.created(|| {
                self.append(blocks, |on| {
                    on.os.read(1);
                    after(on);
                });
            });
        });
    }

    /// Appends `blocks` blocks to the own file, and does `after` each. The first of a page adds the page.
    fn append(&self, blocks: u32, after: impl Fn(&Self)) {
        for block in 0..blocks {
            if block % BLOCKS_OF_PAGE == 0 {
                self.os.write(self.own, 1);
            } else {
                self.os.extend(self.own);
            }
            after(self);
        }
    }

    /// Writes a block of the own file, up to the disk.
    fn rewrite(&self) {
        self.os.overwrite(self.own, 1);
        self.os.sync(self.own, 1);
    }

    fn search(&self) {
        for name in 0..SEARCHED {
            self.os.stat(self.searched, DEPTH + 2);
            if name < CREATED {
                self.os.create(self.searched, self.own, DEPTH + 1);
                self.os.close(self.own);
                self.os.unlink(self.searched, self.own, DEPTH + 1);
            }
        }
    }
}

fn repeat(times: u32, call: impl Fn()) {
    (0..times).for_each(|_| call());
}
