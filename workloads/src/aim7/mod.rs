//! AIM7's disk mix: many users at once, each with a list of small jobs on RAM disks.
//!
//! A user is a process. All users start together, and the result is how many jobs they complete in a minute. Each user
//! has its own files, in a directory that it shares with others.
//!
//! **Work is conserved**: each user does its whole list with any lock, and the reported number is the counted one.

mod job;
mod mix;

use alloc::boxed::Box;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use holdfast_guest::{FileId, Fork, Format, Limits, Machine, Os, Program, Start};

use crate::start::StartLine;
use crate::stream::Stream;
use crate::workload::Load;
use mix::{VMAS, deck};
use serde::{Deserialize, Serialize};

/// Parameters of AIM7's disk mix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Aim7 {
    /// Number of users. All work at the same time.
    ///
    /// Default 2000.
    pub users: u32,
    /// Jobs on each user's list, at most the 100 of the mix.
    ///
    /// Default 100.
    pub jobs: u32,
    /// RAM disks, each with a file system of its own. Each user does one job after another on the next disk.
    ///
    /// Default 16.
    pub disks: u32,
    /// File system of the disks.
    ///
    /// Default [`Format::Xfs`].
    pub format: Format,
}

impl Default for Aim7 {
    fn default() -> Self {
        Aim7 {
            users: 2_000,
            jobs: 100,
            disks: 16,
            format: Format::Xfs,
        }
    }
}

/// Files and directories of a disk that are not a user's own.
const COMMON: u32 = 3;

/// The roles of tasks.
mod role {
    pub(super) const FIRST: u32 = 0;
    pub(super) const USER: u32 = 1;
}

/// A run of the mix.
pub(crate) struct Disk {
    parameters: Aim7,
    /// Jobs that users have completed. Plain memory: real users would each count their own.
    completed: AtomicU64,
}

impl Disk {
    pub(crate) fn new(parameters: &Aim7) -> Self {
        Disk {
            parameters: parameters.clone(),
            completed: AtomicU64::new(0),
        }
    }

    /// The directory that all files of a disk are in.
    fn root(&self, disk: u32) -> FileId {
        self.on(disk, 0)
    }

    /// The directory that searches work in.
    fn searched(&self, disk: u32) -> FileId {
        self.on(disk, 1)
    }

    /// The file that copies read.
    fn common(&self, disk: u32) -> FileId {
        self.on(disk, 2)
    }

    /// The user's own file.
    fn own(&self, disk: u32, user: u32) -> FileId {
        self.on(disk, COMMON + user)
    }

    /// File `row` of a disk. Of all files, file `i` is on volume `i` modulo the number of volumes.
    fn on(&self, disk: u32, row: u32) -> FileId {
        FileId(row * self.parameters.disks + disk)
    }

    fn first<M: Machine>(&self, os: &Os<M>) {
        let users = self.parameters.users;
        StartLine::FIRST.launch(os, Fork::Copy { vmas: VMAS }, role::USER, users);
        while os.wait().is_some() {}
        let completed = self.completed.load(Relaxed);
        let given = u64::from(users) * u64::from(self.parameters.jobs);
        assert_eq!(completed, given, "jobs completed and jobs given");
        os.done(Some(completed));
    }

    fn user<M: Machine>(&self, os: &Os<M>, user: u32) {
        StartLine::FIRST.wait(os);
        let mut order = Stream::new(os.seed("aim7.order"), user);
        let disks = self.parameters.disks;
        let first = order.below(disks);
        for (number, job) in (0..self.parameters.jobs).zip(deck(&mut order)) {
            let begun = os.clock();
            self.job(os, user, number, (first + number) % disks, job);
            os.completed(begun);
            self.completed.fetch_add(1, Relaxed);
        }
    }

    fn needs(&self) -> Limits {
        Limits {
            tasks: 1 + self.parameters.users,
            files: self.parameters.disks * (COMMON + self.parameters.users),
            volumes: self.parameters.disks,
            format: self.parameters.format,
            semaphore_arrays: 1,
            semaphores: 1,
            ..Limits::default()
        }
    }
}

impl Load for Aim7 {
    const THROUGHPUT: Option<&'static str> = Some("jobs/min");

    fn scale_work(&mut self, share: f64) {
        self.jobs = (libm::round(f64::from(self.jobs) * share) as u32).max(1);
    }

    fn program<M: Machine>(&self, _: u32) -> Box<dyn Program<M>> {
        Box::new(Disk::new(self))
    }
}

impl<M: Machine> Program<M> for Disk {
    fn limits(&self) -> Limits {
        self.needs()
    }

    fn run(&self, os: &Os<M>, start: Start) {
        match start.role {
            role::FIRST => self.first(os),
            role::USER => self.user(os, start.argument),
            other => unreachable!("a task of aim7 has the unknown role {other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_user_has_a_file_of_its_own_on_each_disk() {
        for (users, disks) in [(1, 1), (2, 16), (7, 3)] {
            let disk = Disk::new(&Aim7 {
                users,
                disks,
                ..Aim7::default()
            });
            let limits = disk.needs();
            let mut seen = BTreeSet::new();
            for volume in 0..disks {
                let own = (0..users).map(|user| disk.own(volume, user));
                for file in own.chain([disk.root(volume), disk.searched(volume), disk.common(volume)]) {
                    assert!(file.0 < limits.files);
                    assert_eq!(file.0 % limits.volumes, volume);
                    assert!(seen.insert(file.0), "file {} twice", file.0);
                }
            }
        }
    }
}
