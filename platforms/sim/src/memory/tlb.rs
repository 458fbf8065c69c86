//! What the guests' TLBs may still hold, and whether anybody uses what is gone.
//!
//! A TLB is as full as can be: from the time when its vCPU loads a space's tables or flushes, it holds all that the tables said
//! then. Guests say when they take translations away, and from when on they rely on nobody using them ([`Cpu`]); a vCPU that
//! comes to user code with older translations ends the run.
//!
//! [`Cpu`]: holdfast_guest::Cpu

use crate::core::engine::Engine;
use crate::core::failure::Failure;
use crate::cpus::vcpu::Mode;

/// The address spaces of a guest.
#[derive(Debug, Default)]
pub struct Spaces(Vec<Space>);

#[derive(Clone, Copy, Debug, Default)]
struct Space {
    /// How often translations have been taken away.
    changes: u64,
    /// Up to which of those changes the guest relies on being known everywhere.
    flushed: u64,
}

/// What a vCPU's TLB was filled from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlb {
    space: u32,
    /// The number of changes that the tables had gone through.
    changes: u64,
}

impl Spaces {
    fn at(&mut self, space: u32) -> &mut Space {
        let index = space as usize;
        if index >= self.0.len() {
            self.0.resize(index + 1, Space::default());
        }
        &mut self.0[index]
    }

    /// Translations are gone from the tables of `space`: how many times that has happened.
    pub fn change(&mut self, space: u32) -> u64 {
        self.at(space).changes += 1;
        self.at(space).changes
    }

    fn flushed(&mut self, space: u32, change: u64) {
        let space = self.at(space);
        space.flushed = space.flushed.max(change);
    }
}

impl Engine {
    /// `vcpu` loads the tables of `space`.
    pub fn load_tables(&mut self, vcpu: u32, space: u32) {
        let changes = self.vm_of(vcpu).spaces.at(space).changes;
        self.vcpus[vcpu as usize].tlb = Some(Tlb { space, changes });
    }

    /// The TLB of `vcpu` is emptied, by its kernel or by the host.
    pub fn flush_tlb(&mut self, vcpu: u32) {
        if let Some(Tlb { space, .. }) = self.vcpus[vcpu as usize].tlb {
            self.load_tables(vcpu, space);
        }
    }

    /// Guest `vm` relies, from now on, on nobody using what went from `space` up to `change`.
    pub fn tables_flushed(&mut self, vm: u32, space: u32, change: u64) {
        let vm = &mut self.vms[vm as usize];
        vm.spaces.flushed(space, change);
        for vcpu in vm.first_vcpu..vm.first_vcpu + vm.vcpus {
            if self.vcpus[vcpu as usize].pcpu.is_some() {
                self.check_translations(vcpu);
            }
        }
    }

    /// `vcpu` is about to execute user code, if that is what it does.
    #[inline]
    pub fn check_translations(&mut self, vcpu: u32) {
        let this = &self.vcpus[vcpu as usize];
        let (Mode::User, Some(Tlb { space, changes })) = (this.mode, this.tlb) else {
            return;
        };
        // It is there: its tables have been loaded.
        let flushed = self.vm_of(vcpu).spaces.0[space as usize].flushed;
        if changes < flushed {
            self.failure.get_or_insert_with(|| {
                Failure::StaleTranslation(format!(
                    "vcpu {vcpu} uses address space {space} as it was before change {flushed}, of which it was to know"
                ))
            });
        }
    }
}
