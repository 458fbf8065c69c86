//! Hardware that virtualizes LAPICs, between what a guest's instruction does and the host's boundary: the machine's own
//! algorithms on the host's own tables. Nothing here takes time; who calls says when signals arrive.

use holdfast_abi::{Memory, lapic as reg, msr, posted};
use holdfast_host::{ApicRegisters, Exit, Host, HostConfig, HostMemory, SvmPart, VcpuId, VmxPart};
use holdfast_machine::apicv::{Apicv, Exit as ApicvExit};
use holdfast_machine::avic::{Avic, AvicHardware, accepts_wrmsr};
use holdfast_machine::{apicv, avic};

/// What the part has, and the host uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// LAPICs are emulated.
    #[default]
    None,
    /// AVIC; x2APIC is not offered.
    Avic,
    /// AVIC; x2APIC is offered, and emulated but for the delivery of interrupts.
    Hybrid,
    /// AVIC, in x2APIC mode too.
    X2Avic,
    /// Virtual-interrupt delivery and posted interrupts.
    Apicv,
    /// And IPI virtualization.
    Ipiv,
}

pub const PARTS: [Part; 6] = [
    Part::None,
    Part::Avic,
    Part::X2Avic,
    Part::Apicv,
    Part::Ipiv,
    Part::Hybrid,
];

impl Part {
    /// A host on such a part, which uses what it has.
    pub fn configure(self, config: &mut HostConfig) {
        use holdfast_abi::cpuid::{SVM_AVIC, SVM_NESTED_PAGING, SVM_X2AVIC};
        if self.is_amd() {
            let x2avic = self == Part::X2Avic;
            config.avic.enable = holdfast_host::AvicEnable::On;
            config.avic.x2avic = x2avic;
            config.avic.hybrid = self == Part::Hybrid;
            config.avic.part = SvmPart {
                features: SVM_AVIC | SVM_NESTED_PAGING | if x2avic { SVM_X2AVIC } else { 0 },
                family: 0x15,
                extended_tables: false,
            };
        }
        if self.is_intel() {
            config.apicv.enable = true;
            config.apicv.part = VmxPart {
                apicv: true,
                ipiv: self == Part::Ipiv,
            };
        }
    }

    pub fn is_amd(self) -> bool {
        matches!(self, Part::Avic | Part::Hybrid | Part::X2Avic)
    }

    pub fn is_intel(self) -> bool {
        matches!(self, Part::Apicv | Part::Ipiv)
    }

    /// Returns the features of the hardware.
    pub fn hardware(self) -> AvicHardware {
        AvicHardware {
            x2avic: self == Part::X2Avic,
            ..AvicHardware::default()
        }
    }
}

/// What hardware sends to a pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// AVIC's doorbell.
    Doorbell(u32),
    /// An interrupt about what is posted, with its vector.
    Notification(u32, u8),
}

/// The hardware of one vCPU's pCPU, in guest mode.
pub struct Guest<'h> {
    host: &'h Host,
    vcpu: VcpuId,
    hardware: AvicHardware,
}

impl<'h> Guest<'h> {
    pub fn new(host: &'h Host, vcpu: u32, hardware: AvicHardware) -> Guest<'h> {
        let vcpu = VcpuId(vcpu);
        Guest { host, vcpu, hardware }
    }

    fn avic<R>(&self, operation: impl FnOnce(&Avic<'_, HostMemory<'_>>) -> R) -> Option<R> {
        let memory = self.host.memory();
        let avic = Avic::new(&memory, self.host.vmcb(self.vcpu)?, self.hardware)?;
        Some(operation(&avic))
    }

    fn apicv<R>(&self, operation: impl FnOnce(&mut Apicv<'_, HostMemory<'_>>) -> R) -> Option<R> {
        let memory = self.host.memory();
        let mut control = self.host.vmcs(self.vcpu)?;
        let result = operation(&mut Apicv::new(&memory, &mut control)?);
        self.host.set_guest_interrupt_status(self.vcpu, control.status);
        Some(result)
    }

    /// Returns whether it virtualizes the LAPIC at present.
    pub fn is_on(&self) -> bool {
        self.avic(|_| ()).is_some() || self.apicv(|_| ()).is_some()
    }

    /// Enters the guest.
    pub fn enter(&self) {
        self.apicv(|apic| apic.enter());
    }

    /// Returns the vector that the guest takes now, if it can take any.
    pub fn take(&self) -> Option<u8> {
        let by_avic = self.avic(|avic| avic.pending().inspect(|&vector| avic.take(vector)));
        let by_apicv = || self.apicv(|apic| apic.pending().map(|_| apic.take()));
        by_avic.or_else(by_apicv).flatten()
    }

    /// Handles a notification with `vector` in guest mode. Returns whether hardware consumed it.
    pub fn notified(&self, vector: u8) -> bool {
        self.apicv(|apic| apic.notified(vector)).unwrap_or(false)
    }

    /// Returns the vectors that are posted and not in the page yet.
    pub fn posted(&self) -> Vec<u8> {
        let Some(control) = self.host.vmcs(self.vcpu) else {
            return Vec::new();
        };
        let is_posted = |vector: &u8| {
            let (word, bit) = posted::pir_bit(*vector);
            let bits = self.host.memory().load32(control.descriptor + word);
            bits.is_some_and(|bits| bits & bit != 0)
        };
        (0..=255).filter(is_posted).collect()
    }

    /// Stores to the LAPIC's page. Returns the exit, if there is one.
    pub fn write(&self, offset: u32, value: u32, signals: &mut Vec<Signal>) -> Option<Exit> {
        let in_page = |is_x2apic: bool| !is_x2apic;
        let mapped = self.host.maps_apic_page(self.vcpu);
        let in_page = |is_x2apic| mapped && in_page(is_x2apic);
        if let Some(Some(written)) = self.avic(|avic| in_page(avic.is_x2apic()).then(|| avic.write(offset, value))) {
            return self.after_avic(written, offset, value, signals);
        }
        if self.mode() != Some(true)
            && let Some(written) = self.apicv(|apic| apic.write(offset, value))
        {
            return after_apicv(written, value, signals).unwrap_or(Some(Exit::ApicWrite { offset, value }));
        }
        Some(Exit::ApicWrite { offset, value })
    }

    /// Loads from the LAPIC's page. Returns the value or the exit.
    pub fn read(&self, offset: u32) -> Result<u32, Exit> {
        let mapped = self.host.maps_apic_page(self.vcpu);
        if let Some(Some(read)) = self.avic(|avic| (mapped && !avic.is_x2apic()).then(|| avic.read(offset))) {
            let value = 0;
            return read.map_err(|exit| Exit::AvicNoAccel { exit, offset, value });
        }
        let by_apicv = || self.apicv(|apic| apic.read(offset).ok()).flatten();
        let read = if self.mode() == Some(true) { None } else { by_apicv() };
        read.ok_or(Exit::ApicRead { offset })
    }

    /// Returns whether APICv virtualizes x2APIC mode, or `None` without APICv.
    fn mode(&self) -> Option<bool> {
        let control = self.host.vmcs(self.vcpu)?;
        Some(control.secondary & holdfast_abi::vmcs::VIRTUALIZE_X2APIC != 0)
    }

    /// Executes WRMSR. Returns the exit, if there is one.
    pub fn write_msr(&self, msr: u32, value: u64, signals: &mut Vec<Signal>) -> Option<Exit> {
        let exit = Some(Exit::WriteMsr { msr, value });
        let Some(offset) = self.host.passes_msr(self.vcpu, msr, true) else {
            return exit;
        };
        if msr == msr::X2APIC_ICR
            && let Some(icr) = self.avic(|avic| avic.write_icr(value))
        {
            return self.send(icr, signals);
        }
        if accepts_wrmsr(offset, value)
            && let Some(written) = self.avic(|avic| avic.write(offset, value as u32))
        {
            return self.after_avic(written, offset, value as u32, signals);
        }
        match self.apicv(|apic| apic.write_msr(offset, value)) {
            Some(Some(written)) => after_apicv(written, value as u32, signals).unwrap_or(exit),
            _ => exit,
        }
    }

    /// Executes RDMSR.
    pub fn read_msr(&self, msr: u32) -> Result<u64, Exit> {
        let offset = self.host.passes_msr(self.vcpu, msr, false);
        let by_avic = |offset| self.avic(|avic| avic.read_msr(offset))?;
        let by_apicv = |offset| self.apicv(|apic| apic.read_msr(offset))?;
        let read = offset.and_then(|offset| by_avic(offset).or_else(|| by_apicv(offset)));
        read.ok_or(Exit::ReadMsr { msr })
    }

    /// Returns V_TPR, which AVIC keeps equal to the page's task priority and reports at exits. APICv reports nothing.
    pub fn cr8(&self) -> Option<u8> {
        self.avic(|_| (self.host.apic_page(self.vcpu).load(reg::TPR) >> 4) as u8 & 0xf)
    }

    /// Writes CR8 as the guest does. Returns whether hardware kept the value in the LAPIC's page.
    pub fn write_cr8(&self, value: u8) -> bool {
        let value = u32::from(value & 0xf) << 4;
        self.avic(|avic| avic.write(reg::TPR, value)).is_some()
            || self.apicv(|apic| apic.write(reg::TPR, value)).is_some()
    }

    fn after_avic(
        &self,
        written: avic::WriteOutcome,
        offset: u32,
        value: u32,
        signals: &mut Vec<Signal>,
    ) -> Option<Exit> {
        match written {
            avic::WriteOutcome::Done | avic::WriteOutcome::Evaluate => None,
            avic::WriteOutcome::Send(icr) => self.send(icr, signals),
            avic::WriteOutcome::Exit(exit) => Some(Exit::AvicNoAccel { exit, offset, value }),
        }
    }

    /// Sends the IPI in `icr` by AVIC. Returns the exit, if there is one.
    fn send(&self, icr: u64, signals: &mut Vec<Signal>) -> Option<Exit> {
        let posted = self.avic(|avic| {
            let targets = avic.resolve(icr)?;
            Ok(avic.post(&targets, |host_id| signals.push(Signal::Doorbell(host_id))))
        });
        match posted? {
            Ok(posted) => posted.exit.map(Exit::AvicIncompleteIpi),
            Err(exit) => Some(Exit::AvicIncompleteIpi(exit)),
        }
    }
}

/// Returns the exit that APICv causes, if any. The outer `None`: the access exits as without APICv.
fn after_apicv(written: apicv::WriteOutcome, value: u32, signals: &mut Vec<Signal>) -> Option<Option<Exit>> {
    Some(match written {
        apicv::WriteOutcome::Done | apicv::WriteOutcome::Evaluate => None,
        apicv::WriteOutcome::Posted(notification) => {
            signals.extend(notification.map(|sent| Signal::Notification(sent.destination, sent.vector)));
            None
        }
        apicv::WriteOutcome::Exit(ApicvExit::Access { .. }) => return None,
        apicv::WriteOutcome::Exit(ApicvExit::Write { offset }) => Some(Exit::ApicvWrite { offset, value }),
    })
}
