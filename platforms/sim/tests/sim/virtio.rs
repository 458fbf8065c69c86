//! Virtqueues between the guest's driver and the host's device: in every order of their steps no notification is lost,
//! and a planted loss is found.

use holdfast_abi::virtio::{Network, Queue};
use holdfast_guest::DriverQueue;
use holdfast_sim::DeviceQueue;

/// Number of steps of a schedule; bit `i` selects the side that takes step `i`.
const STEPS: u32 = 14;
/// Number of buffers that the sender has.
const BUFFERS: u32 = 5;

/// The receiver of buffers. It checks the queue; if the queue is empty, it enables notifications, checks again, and
/// sleeps.
struct Taker<'a> {
    take: Look<'a>,
    enable: Look<'a>,
    /// It checks the queue again after it has enabled notifications.
    looks_again: bool,
    saw_nothing: bool,
    asleep: bool,
    taken: u32,
}

impl Taker<'_> {
    fn step(&mut self) {
        if self.asleep {
        } else if self.saw_nothing {
            self.saw_nothing = false;
            self.asleep = !(self.enable)() || !self.looks_again;
        } else if (self.take)() {
            self.taken += 1;
        } else {
            self.saw_nothing = true;
        }
    }
}

/// Plays `schedule`. Returns whether every buffer was taken.
fn play(schedule: u32, mut send: impl FnMut(u32) -> bool, mut taker: Taker<'_>) -> bool {
    let mut sent = 0;
    for step in 0..STEPS + BUFFERS {
        if (step >= STEPS || schedule >> step & 1 == 1) && sent < BUFFERS {
            if send(sent) {
                taker.asleep = false;
            }
            sent += 1;
        } else {
            taker.step();
        }
    }
    while !taker.asleep {
        taker.step();
    }
    taker.taken == BUFFERS
}

type Look<'a> = Box<dyn FnMut() -> bool + 'a>;

fn taker<'a>(take: Look<'a>, enable: Look<'a>, looks_again: bool) -> Taker<'a> {
    Taker {
        take,
        enable,
        looks_again,
        saw_nothing: false,
        asleep: false,
        taken: 0,
    }
}

/// Number of schedules that leave a buffer behind: from driver to device, and back.
fn lost(looks_again: bool) -> (u32, u32) {
    let forth = |schedule: u32| {
        let (queue, driver) = (Queue::new(), DriverQueue::default());
        let device = std::cell::RefCell::new(DeviceQueue::default());
        let taker = taker(
            Box::new(|| device.borrow_mut().pop(&queue).is_some()),
            Box::new(|| device.borrow_mut().enable(&queue)),
            looks_again,
        );
        play(schedule, |buffer| driver.add(&queue, buffer), taker)
    };
    let back = |schedule: u32| {
        let (network, driver) = (Network::default(), DriverQueue::default());
        let queue = &network.receive;
        let mut device = DeviceQueue::default();
        for buffer in 0..BUFFERS {
            driver.add(queue, buffer);
        }
        let taker = taker(
            Box::new(|| driver.take(queue).is_some()),
            Box::new(|| driver.enable(queue)),
            looks_again,
        );
        let send = |_| {
            let buffer = device.pop(queue).expect("the driver has offered enough");
            device.push(queue, buffer)
        };
        play(schedule, send, taker)
    };
    let schedules = 0..1 << STEPS;
    (
        schedules.clone().filter(|&schedule| !forth(schedule)).count() as u32,
        schedules.filter(|&schedule| !back(schedule)).count() as u32,
    )
}

#[test]
fn no_notification_is_lost_whoever_comes_first() {
    assert_eq!(lost(true), (0, 0));
}

// A planted fault: the receiver that has enabled notifications does not check again.
#[test]
fn who_does_not_look_again_loses_notifications() {
    let (forth, back) = lost(false);
    assert!(forth > 0 && back > 0, "{forth} to the device, {back} to the driver");
}
