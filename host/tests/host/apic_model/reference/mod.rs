//! The plain model: each LAPIC a few sets and numbers, read straight off the manual's chapter; what KVM decides where
//! the manual leaves it open is said at that place.

mod apic;
mod hardware;

use super::{Act, Delivers, FIRST_VM, Setup, Taken, VCPUS};
use apic::{Apic, Life, Message, Mode};
use hardware::Sent;

/// The reference model: all LAPICs.
pub struct Reference {
    setup: Setup,
    apics: Vec<Apic>,
    /// For each VM whether a LAPIC that is on was ever moved.
    moved: [bool; 2],
}

impl Reference {
    pub fn new(setup: Setup) -> Reference {
        let index = |vcpu: u32| if vcpu < FIRST_VM { vcpu } else { vcpu - FIRST_VM };
        Reference {
            setup,
            apics: (0..VCPUS).map(|vcpu| Apic::new(index(vcpu))).collect(),
            moved: [false; 2],
        }
    }

    fn vm_of(at: usize) -> usize {
        usize::from(at as u32 >= FIRST_VM)
    }

    fn members(vm: usize) -> std::ops::Range<usize> {
        if vm == 0 {
            0..FIRST_VM as usize
        } else {
            FIRST_VM as usize..VCPUS as usize
        }
    }

    fn send(&mut self, vm: usize, message: &Message) {
        let mode = message.low >> 8 & 7;
        let named = |apic: &Apic, at: usize| {
            apic.mode != Mode::Off
                && match (message.low >> 18 & 3, message.sender) {
                    (0, _) | (_, None) => apic.is_named(message),
                    (1, Some(sender)) => at == sender,
                    (2, _) => true,
                    (_, Some(sender)) => at != sender,
                }
        };
        let mut to: Vec<usize> = Self::members(vm).filter(|&at| named(&self.apics[at], at)).collect();
        if mode == 1 || message.hint {
            to.retain(|&at| self.apics[at].enabled);
            if let Some(&least) = to.iter().min_by_key(|&&at| self.apics[at].arbitration) {
                to = vec![least];
            }
        }
        to.into_iter().for_each(|at| self.accept(at, message));
    }

    fn accept(&mut self, at: usize, message: &Message) {
        let apic = &mut self.apics[at];
        let level = message.low & 1 << 15 != 0;
        let vector = message.low as u8;
        match message.low >> 8 & 7 {
            mode @ (0 | 1) => {
                apic.arbitration += mode;
                if vector < 16 && (message.asserted || !level) {
                    apic.error();
                } else if message.asserted || !level {
                    apic.request(vector, level);
                }
            }
            // KVM's own modes end a halt, and have no other visible effect.
            3 => apic.kicked = true,
            4 => apic.nmis = (apic.nmis + 1).min(if apic.in_nmi { 1 } else { 2 }),
            5 if level && !message.asserted => {}
            // Both are the processor's to take, between two instructions: what comes with them finds the LAPIC as it
            // was.
            5 => apic.init = true,
            6 => apic.sipi = Some(vector),
            _ => {}
        }
    }

    fn command(&mut self, at: usize, low: u32, destination: u32) {
        let wide = self.apics[at].mode == Mode::X2Apic;
        match self.sent_by_hardware(at, low, destination) {
            Sent::To(targets) => return targets.into_iter().for_each(|to| self.post(to, low as u8)),
            Sent::Dropped => return,
            Sent::BySoftware => {}
        }
        if matches!(low >> 8 & 7, 0 | 1) && (low as u8) < 16 {
            return self.apics[at].error();
        }
        let message = Message {
            sender: Some(at),
            low,
            logical: low & 1 << 11 != 0,
            destination,
            wide,
            hint: false,
            asserted: low & 1 << 14 != 0,
        };
        self.send(Self::vm_of(at), &message);
    }

    /// Writes a register that both modes have.
    fn write(&mut self, at: usize, offset: u32, value: u32) {
        let apic = &mut self.apics[at];
        match offset {
            0x80 => apic.tpr = value as u8,
            0xb0 => drop(apic.isr.pop_last()),
            0xf0 => {
                apic.enabled = value & 0x100 != 0;
                if !apic.enabled {
                    apic.error_lvt |= 0x1_0000;
                    apic.error_vector = None;
                }
            }
            0x370 => {
                apic.error_lvt = value | if apic.enabled { 0 } else { 0x1_0000 };
                let legal = apic.error_lvt & 0x1_0000 == 0 && value as u8 >= 16;
                apic.error_vector = legal.then_some(value as u8);
            }
            _ => {}
        }
    }

    fn write_base(&mut self, at: usize, value: u64) {
        let apic = &mut self.apics[at];
        let to = match value >> 10 & 3 {
            0 => Some(Mode::Off),
            2 => Some(Mode::XApic),
            3 if Self::offers_x2apic(self.setup) => Some(Mode::X2Apic),
            _ => None,
        };
        let reserved = value & 0x2ff != 0 || value >> 36 != 0;
        let legal = match (apic.mode, to) {
            _ if reserved => false,
            (_, None) => false,
            (Mode::X2Apic, Some(to)) => to != Mode::XApic,
            (Mode::Off, Some(to)) => to != Mode::X2Apic,
            (Mode::XApic, _) => true,
        };
        let Some(to) = to.filter(|_| legal) else {
            return apic.taken.push(Taken::Fault);
        };
        apic.base = value & !0xfff;
        if to != Mode::Off && apic.base != 0xfee0_0000 {
            self.moved[Self::vm_of(at)] = true;
        }
        if to != Mode::Off && self.apics[at].mode == Mode::Off {
            self.forget_requests_while_off(at);
        }
        let apic = &mut self.apics[at];
        if to == Mode::Off && apic.mode != Mode::Off {
            // Everything but what belongs to the processor is forgotten.
            let before = apic.clone();
            apic.mode = to;
            apic.reset();
            (apic.interrupts, apic.kicked) = (before.interrupts, before.kicked);
            (apic.nmis, apic.in_nmi) = (before.nmis, before.in_nmi);
        }
        apic.mode = to;
        // KVM: any write of the register undoes a renaming.
        apic.id = apic.index;
        if to == Mode::X2Apic {
            // Derived; and the flat model is xAPIC's alone, but its register is kept.
            apic.ldr = 1 << (apic.index & 15);
        }
    }

    fn write_msr(&mut self, at: usize, msr: u32, value: u64) {
        if msr == 0x1b {
            // The bootstrap flag is not the guest's to change.
            return self.write_base(at, value & !0x100);
        }
        let offset = msr.wrapping_sub(0x800).wrapping_mul(16);
        let x2apic = self.apics[at].mode == Mode::X2Apic;
        let narrow = value <= 0xffff_ffff;
        match offset {
            0x300 if x2apic => self.command(at, value as u32, (value >> 32) as u32),
            0x3f0 if x2apic && value <= 0xff => self.self_ipi(at, value as u8),
            0xb0 if x2apic && value == 0 => self.write(at, offset, 0),
            0x80 | 0xf0 | 0x370 if x2apic && narrow => self.write(at, offset, value as u32),
            _ => self.apics[at].taken.push(Taken::Fault),
        }
    }

    /// x2APIC's self-IPI register: APICv has it whether hardware sends otherwise or not, AVIC leaves it to software.
    fn self_ipi(&mut self, at: usize, vector: u8) {
        if self.setup.part.is_intel() && vector >= 16 && self.is_on(at) {
            return self.post(at, vector);
        }
        let error = vector < 16;
        let apic = &mut self.apics[at];
        if error {
            apic.error();
        } else {
            apic.request(vector, false);
        }
    }

    fn write_page(&mut self, at: usize, offset: u32, value: u32) {
        let apic = &mut self.apics[at];
        // The page is where the base says; programs store to where it is after reset.
        if apic.mode != Mode::XApic || apic.base != 0xfee0_0000 {
            return;
        }
        match offset {
            0x20 => apic.id = value >> 24,
            0xd0 => apic.ldr = value >> 24,
            0xe0 => apic.flat = value >> 28 == 0xf,
            0x310 => apic.icr_high = value & 0xff00_0000,
            0x300 => {
                let destination = apic.icr_high >> 24;
                self.command(at, value, destination);
            }
            0x2f0 | 0x40 | 0x400..=0xff0 if offset.is_multiple_of(16) => apic.error(),
            _ => self.write(at, offset, value),
        }
    }

    fn deliver_all(&mut self) {
        for apic in &mut self.apics {
            apic.take_init();
            let halted = apic.life == Life::Halted;
            if halted && apic.kicked {
                apic.life = Life::Runs;
            }
            if apic.life != Life::AwaitsSipi && apic.nmis > 0 && !apic.in_nmi {
                apic.life = Life::Runs;
                apic.nmis -= 1;
                apic.in_nmi = true;
                // The handler's gate masks interrupts.
                apic.interrupts = false;
                apic.taken.push(Taken::Nmi);
            }
            let vector = apic.deliverable().filter(|_| apic.interrupts);
            if let Some(vector) = vector.filter(|_| apic.life != Life::AwaitsSipi) {
                apic.life = Life::Runs;
                apic.irr.remove(&vector);
                apic.isr.insert(vector);
                apic.interrupts = false;
                apic.taken.push(Taken::Vector(vector));
            }
            // Whatever ends a halt uses the kick up.
            if halted && apic.life == Life::Runs {
                apic.kicked = false;
            }
        }
    }
}

impl Delivers for Reference {
    fn perform(&mut self, act: Act) {
        let runs = |vcpu: u32| self.apics[vcpu as usize].life == Life::Runs;
        match act {
            Act::Page { vcpu, offset, value } if runs(vcpu) => self.write_page(vcpu as usize, offset, value),
            Act::Msr { vcpu, msr, value } if runs(vcpu) => self.write_msr(vcpu as usize, msr, value),
            Act::Cr8 { vcpu, value } if runs(vcpu) => {
                let apic = &mut self.apics[vcpu as usize];
                if apic.tpr >> 4 != value & 0xf {
                    apic.tpr = value << 4;
                }
            }
            Act::Interrupts { vcpu, enabled } if runs(vcpu) => self.apics[vcpu as usize].interrupts = enabled,
            Act::Iret { vcpu } if runs(vcpu) => self.apics[vcpu as usize].in_nmi = false,
            Act::Halt { vcpu } if runs(vcpu) => self.apics[vcpu as usize].life = Life::Halted,
            Act::Msi { vm, address, data } if address >> 20 == 0xfee => {
                let message = Message {
                    sender: None,
                    low: data & 0xc7ff,
                    logical: address & 4 != 0,
                    destination: (address >> 12) as u32 & 0xff,
                    wide: false,
                    hint: address & 8 != 0,
                    asserted: true,
                };
                self.send(vm as usize, &message);
            }
            _ => {}
        }
        self.deliver_all();
    }

    fn taken(&mut self) -> Vec<Vec<Taken>> {
        self.apics
            .iter_mut()
            .map(|apic| std::mem::take(&mut apic.taken))
            .collect()
    }

    fn sleeps(&self, vcpu: u32) -> bool {
        self.apics[vcpu as usize].life != Life::Runs
    }

    fn is_virtualized(&self, vcpu: u32) -> bool {
        self.is_on(vcpu as usize)
    }

    fn registers(&self, vcpu: u32) -> [Vec<u8>; 3] {
        let apic = &self.apics[vcpu as usize];
        [&apic.irr, &apic.isr, &apic.tmr].map(|set| set.iter().copied().collect())
    }
}
