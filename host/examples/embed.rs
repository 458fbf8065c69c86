//! Embeds the host in a VMM: a vCPU exits to user space, a device sends a message, and the vCPU's state moves to
//! another host.
//!
//! The embedder reports events and executes commands. This one has one pCPU, a guest whose instructions are written
//! below, and a clock that it advances by hand: `cargo run -p holdfast-host --example embed`.

use holdfast_abi::{lapic, msi};
use holdfast_host::{
    Command, ConfigError, Event, Exit, GuestState, HardwareEvent, Host, HostConfig, Nanos, PcpuId, PcpuPlace, Run,
    TaskConfig, TaskEvent, VcpuId, VmConfig, VmId, VmmEvent,
};

const PCPU: PcpuId = PcpuId(0);
const VM: VmId = VmId(0);
const VCPU: VcpuId = VcpuId(0);
/// The vector of the device's message.
const VECTOR: u8 = 0x51;

/// The state of the guest at an exit: kernel mode, with interrupts enabled.
const GUEST: GuestState = GuestState {
    interrupts_enabled: true,
    cpl: 0,
    cr8: 0,
    undelivered: None,
    pv_eoi: false,
    word: 0,
};

struct Vmm {
    host: Host,
    now: u64,
    doing: Run,
    commands: Vec<Command>,
}

impl Vmm {
    /// Returns a VMM with one VM of one vCPU. Its device and user-space work run as the host task 1.
    fn new() -> Result<Vmm, ConfigError> {
        let place = PcpuPlace {
            socket: 0,
            core: 0,
            thread: 0,
        };
        let mut host = Host::new(&HostConfig::linux_3_3(), &[place])?;
        host.add_vm(&VmConfig::default(), 1, &[])?;
        host.add_task(&TaskConfig {
            dormant: true,
            ..TaskConfig::default()
        })?;
        Ok(Vmm {
            host,
            now: 0,
            doing: Run::Idle,
            commands: Vec::new(),
        })
    }

    fn start(&mut self) {
        self.host.start(Nanos(self.now), &mut self.commands);
        self.execute();
    }

    /// Reports `event` to the host, and executes its commands.
    fn report(&mut self, event: Event) {
        self.now += 1_000;
        self.host.handle(event, Nanos(self.now), &mut self.commands);
        self.execute();
    }

    fn exit(&mut self, exit: Exit) {
        self.report(Event::Hardware(HardwareEvent::Exit {
            pcpu: PCPU,
            exit,
            guest: GUEST,
        }));
    }

    /// Executes the commands. A real VMM enters the guest, programs timers and sends IPIs here.
    fn execute(&mut self) {
        for command in self.commands.drain(..) {
            match command {
                Command::Run { run, .. } => self.doing = run,
                Command::State { vcpu, state } => println!("{:>6} ns: vcpu {} is {state:?}", self.now, vcpu.0),
                _ => {}
            }
        }
    }

    /// The device sends its message with `vector`.
    fn message(&mut self, vector: u8) {
        self.report(Event::Vmm(VmmEvent::Msi {
            pcpu: PCPU,
            vm: VM,
            address: msi::address(0),
            data: u32::from(vector),
        }));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut vmm = Vmm::new()?;
    vmm.start();

    // The guest enables its LAPIC.
    vmm.exit(Exit::ApicWrite {
        offset: lapic::SVR,
        value: lapic::SVR_ENABLE | 0xff,
    });

    // The guest needs its VMM: its thread returns from KVM_RUN. As a task it does the device's work, which sends the
    // message, and enters KVM_RUN again. The interrupt is injected with that entry.
    vmm.exit(Exit::Userspace);
    assert_eq!(vmm.doing, Run::Task(vmm.host.thread(VCPU)));
    vmm.message(VECTOR);
    vmm.report(Event::Task(TaskEvent::RunsVcpu { pcpu: PCPU, vcpu: VCPU }));
    let injected = Run::Guest {
        vcpu: VCPU,
        inject: Some(VECTOR),
        window: false,
    };
    assert_eq!(vmm.doing, injected);

    // The vCPU halts with the interrupt in service, and migrates: its LAPIC, timer and halt are in the saved state.
    vmm.exit(Exit::Hlt);
    let saved = vmm.host.save_vcpu(VCPU, Nanos(vmm.now));
    let mut target = Vmm::new()?;
    target.now = vmm.now + 1_000_000;
    target.host.restore_vcpu(VCPU, &saved, Nanos(target.now))?;
    target.host.continue_counters(&vmm.host);
    target.start();
    assert_eq!(target.doing, Run::Idle);

    // A message of higher priority wakes it on the new host.
    target.message(VECTOR + 0x10);
    assert!(matches!(target.doing, Run::Guest { inject: Some(0x61), .. }));
    Ok(())
}
