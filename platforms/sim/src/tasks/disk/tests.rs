//! The disk without a host: times of requests, and requests that no driver would make.

use std::sync::atomic::Ordering::Relaxed;

use super::*;

const MS: u64 = 1_000_000;

fn drive(depth: u32) -> (Drive, Box<virtio::Disk>) {
    // A page takes a tenth of a millisecond.
    let config = DiskConfig {
        latency_ns: 5 * MS,
        depth,
        bytes_per_second: 40_960_000,
    };
    (Drive::new(config), Box::default())
}

/// Offers `requests` of so many pages each.
fn offer(memory: &virtio::Disk, requests: &[u32]) {
    for (&pages, number) in requests.iter().zip(0..) {
        let at = memory.requests.available.load(Relaxed);
        memory.pages[number as usize].store(pages, Relaxed);
        memory.requests.offered[usize::from(at) % QUEUE_SIZE].store(number, Relaxed);
        memory.requests.available.store(at.wrapping_add(1), Relaxed);
    }
}

/// Plays the thread until it sleeps without an end. Returns when each request was returned, in tenths of a millisecond.
fn play(drive: &mut Drive, memory: &virtio::Disk) -> Vec<(u32, u64)> {
    let (mut now, mut seen, mut ends) = (0, 0, Vec::new());
    loop {
        let action = drive.next(memory, now);
        let used = memory.requests.used.load(Relaxed);
        while seen != used {
            let request = memory.requests.returned[usize::from(seen) % QUEUE_SIZE].load(Relaxed);
            ends.push((request, now * 10 / MS));
            seen = seen.wrapping_add(1);
        }
        match action {
            Action::Work(ns) => now += ns,
            Action::Signal => {}
            Action::Sleep(Some(until)) => now = now.max(until),
            Action::Sleep(None) => return ends,
        }
    }
}

#[test]
fn a_disk_serves_one_request_after_another() {
    let (mut drive, memory) = drive(1);
    offer(&memory, &[10, 20]);
    // 5 ms and 1 ms; then 5 ms and 2 ms, with the thread's work of less than 0.1 ms.
    assert_eq!(play(&mut drive, &memory), [(0, 60), (1, 130)]);
}

#[test]
fn a_deep_disk_overlaps_latencies_and_not_transfers() {
    let (mut drive, memory) = drive(8);
    offer(&memory, &[10, 20, 10]);
    assert_eq!(play(&mut drive, &memory), [(0, 60), (1, 80), (2, 90)]);
}

#[test]
fn no_more_requests_than_its_depth_are_on_the_disk() {
    for depth in [1, 3] {
        let (mut drive, memory) = drive(depth);
        offer(&memory, &[1; 10]);
        let mut now = 0;
        loop {
            match drive.next(&memory, now) {
                Action::Work(ns) => now += ns,
                Action::Signal => {}
                Action::Sleep(Some(until)) => {
                    assert!((1..=depth as usize).contains(&drive.flights.len()), "{depth}");
                    now = now.max(until);
                }
                Action::Sleep(None) => break,
            }
        }
        assert_eq!(memory.requests.used.load(Relaxed), 10);
    }
}

#[test]
fn any_request_of_a_guest_is_survived() {
    let (mut drive, memory) = drive(2);
    memory.requests.available.store(3, Relaxed);
    for (at, request) in [u32::MAX, 255, 256].into_iter().enumerate() {
        memory.requests.offered[at].store(request, Relaxed);
    }
    memory.pages.iter().for_each(|pages| pages.store(u32::MAX, Relaxed));
    assert_eq!(play(&mut drive, &memory).len(), 3);
    // A driver that claims more entries than the queue has.
    memory.requests.available.store(u16::MAX, Relaxed);
    assert_eq!(drive.next(&memory, u64::MAX), Action::Sleep(None));
}
