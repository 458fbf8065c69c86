//! The vCPU's thread: it enters its guest, takes interrupts, halts and moves, until every vector has been taken.

use ::loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use ::loom::sync::atomic::fence;
use holdfast_abi::{Vmcb, lapic, vmcb};
use holdfast_host::avic::{handshake, remap};
use holdfast_machine::avic::Avic;

use super::{OUTSIDE, PAGE, TABLE, VECTOR, Waiting, World};
use crate::interrupts::LoomMemory;

pub(super) struct VcpuThread<'w> {
    world: &'w World,
    pcpu: u32,
    /// Whether the vCPU has been preempted once, for [`Waiting::SpinsAndMoves`].
    moved: bool,
}

impl<'w> VcpuThread<'w> {
    pub(super) fn new(world: &'w World) -> VcpuThread<'w> {
        VcpuThread {
            world,
            pcpu: 0,
            moved: false,
        }
    }

    /// Runs until every vector has been taken.
    pub(super) fn run(&mut self) {
        let world = self.world;
        let mut control = Vmcb::new();
        control.write32(vmcb::INT_CTL, vmcb::AVIC_ENABLE);
        control.write64(vmcb::AVIC_BACKING_PAGE, PAGE);
        control.write64(vmcb::AVIC_PHYSICAL_TABLE, TABLE);
        let avic = Avic::new(&world.memory, &control, world.hardware()).expect("AVIC is on");
        let all: u32 = (0..world.scenario.senders.len() as u8).map(|number| 1 << number).sum();
        let mut taken = 0u32;
        match world.scenario.waiting {
            Waiting::Deactivates => self.deactivate(),
            Waiting::DeactivatesAndMoves => {
                self.move_over();
                self.deactivate();
            }
            Waiting::Halts | Waiting::Spins | Waiting::SpinsAndMoves => {}
        }
        loop {
            // The hypervisor checks requests and injects interrupts of an emulated LAPIC.
            if world.request.load(Acquire) == 1 {
                world.request.swap(0, Relaxed);
                fence(SeqCst);
            }
            if world.active.load(Relaxed) == 0 {
                take_all(&avic, &mut taken);
            }
            let entered = handshake::enter(&world.memory, world, world.scenario.faults);
            if entered {
                // VMRUN evaluates IRR itself, so earlier doorbells have no effect.
                world.pcpus[self.pcpu as usize].doorbell.take();
                loop {
                    if world.active.load(Relaxed) == 1 {
                        take_all(&avic, &mut taken);
                    }
                    if taken == all {
                        world.mode.swap(OUTSIDE, Release);
                        return;
                    }
                    if !self.spins_on() {
                        break;
                    }
                }
            }
            world.mode.swap(OUTSIDE, Release);
            if taken == all {
                return;
            }
            if entered {
                self.leave(&avic);
            }
        }
    }

    /// Switches AVIC off before the first entry.
    fn deactivate(&self) {
        self.world.take_devices_back();
        handshake::deactivate(&self.world.tables(), self.world);
    }

    /// Returns whether the vCPU stays in its guest, where a doorbell has arrived.
    fn spins_on(&self) -> bool {
        let world = self.world;
        let lines = &world.pcpus[self.pcpu as usize];
        match world.scenario.waiting {
            Waiting::Halts => return false,
            Waiting::SpinsAndMoves if !self.moved => return false,
            _ => {}
        }
        loop {
            if lines.doorbell.take() && world.active.load(Relaxed) == 1 {
                return true;
            }
            if lines.ipi.take() {
                return false;
            }
            world.waiter.wait();
        }
    }

    /// Handles the exit.
    fn leave(&mut self, avic: &Avic<'_, LoomMemory>) {
        let world = self.world;
        match world.scenario.waiting {
            Waiting::Halts => self.halt(avic),
            Waiting::SpinsAndMoves if !self.moved => {
                self.moved = true;
                self.move_over();
            }
            _ => {}
        }
    }

    fn halt(&mut self, avic: &Avic<'_, LoomMemory>) {
        let world = self.world;
        let tables = world.tables();
        let late = world.scenario.remap_after_look;
        let entries = world.remaps().filter(|_| !late);
        remap::blocking(&tables, entries);
        loop {
            world.waiter.prepare(!world.scenario.sleep_without_fence);
            if avic.pending().is_some() {
                break;
            }
            world.remaps().for_each(|entry| entry.stopped(true));
            tables.put();
            world.waiter.sleep();
            self.take_pcpu(true);
        }
        world.waiter.finish();
        world.remaps().for_each(|entry| entry.running(self.pcpu));
        tables.unblocking(self.pcpu);
    }

    /// Moves the vCPU to the other pCPU.
    fn move_over(&mut self) {
        self.world.remaps().for_each(|entry| entry.stopped(false));
        self.world.tables().put();
        self.take_pcpu(false);
    }

    fn take_pcpu(&mut self, blocks: bool) {
        self.pcpu ^= 1;
        self.world.cpu.store(self.pcpu, Release);
        self.world.tables().load(self.pcpu, blocks);
        if !blocks {
            self.world.remaps().for_each(|entry| entry.running(self.pcpu));
        }
    }
}

/// Takes all pending vectors and signals their EOI.
fn take_all(avic: &Avic<'_, LoomMemory>, taken: &mut u32) {
    while let Some(vector) = avic.pending() {
        avic.take(vector);
        avic.write(lapic::EOI, 0);
        let bit = 1 << (VECTOR - vector);
        assert!(*taken & bit == 0, "vector {vector:#x} is taken twice");
        *taken |= bit;
    }
}
