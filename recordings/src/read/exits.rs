//! Exit reasons by name: Intel SDM volume 3, appendix C; AMD APM volume 2, appendix C. The spelling is the kernel's.

/// Reasons of Intel's VMX.
const VMX: &[(u32, &str)] = &[
    (0, "EXCEPTION_NMI"),
    (1, "EXTERNAL_INTERRUPT"),
    (2, "TRIPLE_FAULT"),
    (3, "INIT_SIGNAL"),
    (4, "SIPI_SIGNAL"),
    (7, "INTERRUPT_WINDOW"),
    (8, "NMI_WINDOW"),
    (9, "TASK_SWITCH"),
    (10, "CPUID"),
    (12, "HLT"),
    (13, "INVD"),
    (14, "INVLPG"),
    (15, "RDPMC"),
    (16, "RDTSC"),
    (18, "VMCALL"),
    (19, "VMCLEAR"),
    (20, "VMLAUNCH"),
    (21, "VMPTRLD"),
    (22, "VMPTRST"),
    (23, "VMREAD"),
    (24, "VMRESUME"),
    (25, "VMWRITE"),
    (26, "VMOFF"),
    (27, "VMON"),
    (28, "CR_ACCESS"),
    (29, "DR_ACCESS"),
    (30, "IO_INSTRUCTION"),
    (31, "MSR_READ"),
    (32, "MSR_WRITE"),
    (33, "INVALID_STATE"),
    (34, "MSR_LOAD_FAIL"),
    (36, "MWAIT_INSTRUCTION"),
    (37, "MONITOR_TRAP_FLAG"),
    (39, "MONITOR_INSTRUCTION"),
    (40, "PAUSE_INSTRUCTION"),
    (41, "MCE_DURING_VMENTRY"),
    (43, "TPR_BELOW_THRESHOLD"),
    (44, "APIC_ACCESS"),
    (45, "EOI_INDUCED"),
    (46, "GDTR_IDTR"),
    (47, "LDTR_TR"),
    (48, "EPT_VIOLATION"),
    (49, "EPT_MISCONFIG"),
    (50, "INVEPT"),
    (51, "RDTSCP"),
    (52, "PREEMPTION_TIMER"),
    (53, "INVVPID"),
    (54, "WBINVD"),
    (55, "XSETBV"),
    (56, "APIC_WRITE"),
    (57, "RDRAND"),
    (58, "INVPCID"),
    (59, "VMFUNC"),
    (60, "ENCLS"),
    (61, "RDSEED"),
    (62, "PML_FULL"),
    (63, "XSAVES"),
    (64, "XRSTORS"),
    (67, "UMWAIT"),
    (68, "TPAUSE"),
    (74, "BUS_LOCK"),
    (75, "NOTIFY"),
    (77, "TDCALL"),
    (84, "MSR_READ_IMM"),
    (85, "MSR_WRITE_IMM"),
];

/// Reasons of AMD's SVM without accesses to control and debug registers and exceptions, which `svm` counts out.
const SVM: &[(u32, &str)] = &[
    (0x60, "interrupt"),
    (0x61, "nmi"),
    (0x62, "smi"),
    (0x63, "init"),
    (0x64, "vintr"),
    (0x65, "cr0_sel_write"),
    (0x66, "read_idtr"),
    (0x67, "read_gdtr"),
    (0x68, "read_ldtr"),
    (0x69, "read_rt"),
    (0x6a, "write_idtr"),
    (0x6b, "write_gdtr"),
    (0x6c, "write_ldtr"),
    (0x6d, "write_rt"),
    (0x6e, "rdtsc"),
    (0x6f, "rdpmc"),
    (0x70, "pushf"),
    (0x71, "popf"),
    (0x72, "cpuid"),
    (0x73, "rsm"),
    (0x74, "iret"),
    (0x75, "swint"),
    (0x76, "invd"),
    (0x77, "pause"),
    (0x78, "hlt"),
    (0x79, "invlpg"),
    (0x7a, "invlpga"),
    (0x7b, "io"),
    (0x7c, "msr"),
    (0x7d, "task_switch"),
    (0x7e, "ferr_freeze"),
    (0x7f, "shutdown"),
    (0x80, "vmrun"),
    (0x81, "hypercall"),
    (0x82, "vmload"),
    (0x83, "vmsave"),
    (0x84, "stgi"),
    (0x85, "clgi"),
    (0x86, "skinit"),
    (0x87, "rdtscp"),
    (0x88, "icebp"),
    (0x89, "wbinvd"),
    (0x8a, "monitor"),
    (0x8b, "mwait"),
    (0x8c, "mwait_cond"),
    (0x8d, "xsetbv"),
    (0x8e, "rdpru"),
    (0x8f, "write_efer_trap"),
    (0x90, "write_cr0_trap"),
    (0x94, "write_cr4_trap"),
    (0x98, "write_cr8_trap"),
    (0xa2, "invpcid"),
    (0xa5, "buslock"),
    (0xa6, "idle-halt"),
    (0x400, "npf"),
    (0x401, "avic_incomplete_ipi"),
    (0x402, "avic_unaccelerated_access"),
    (0x403, "vmgexit"),
    (u32::MAX, "invalid_guest_state"),
];

/// Exceptions by vector, as `kvm_exit` of SVM writes them before ` excp`.
const EXCEPTIONS: [&str; 20] = [
    "DE", "DB", "", "BP", "OF", "BR", "UD", "NM", "DF", "", "TS", "NP", "SS", "GP", "PF", "", "MF", "AC", "MC", "XF",
];

/// Returns the name of an exit reason: `isa` 1 is Intel's VMX, 2 AMD's SVM. `None` if it has no name here.
#[must_use]
pub fn exit_name(isa: u32, reason: u32) -> Option<String> {
    let (table, reason) = match isa {
        // The upper half has flags.
        1 => (VMX, reason & 0xffff),
        2 => (SVM, reason),
        _ => return None,
    };
    if isa == 2 && reason < 0x60 {
        return match (reason >> 4, reason & 0xf) {
            (0, number) => Some(format!("read_cr{number}")),
            (1, number) => Some(format!("write_cr{number}")),
            (2, number) => Some(format!("read_dr{number}")),
            (3, number) => Some(format!("write_dr{number}")),
            _ => match *EXCEPTIONS.get(reason as usize - 0x40)? {
                "" => None,
                name => Some(format!("{name} excp")),
            },
        };
    }
    let row = table.iter().find(|(code, _)| *code == reason)?;
    Some(row.1.to_owned())
}

/// Returns the reason and the kind of hardware (see [`exit_name`]) that a name stands for.
#[must_use]
pub fn exit_reason(name: &str) -> Option<(u32, u32)> {
    if let Some(mnemonic) = name.strip_prefix("EXIT_") {
        return mnemonic_reason(mnemonic);
    }
    let in_table = |table: &[(u32, &str)]| table.iter().find(|row| row.1 == name).map(|row| row.0);
    if let Some(reason) = in_table(VMX) {
        return Some((reason, 1));
    }
    if let Some(reason) = in_table(SVM) {
        return Some((reason, 2));
    }
    for (prefix, base) in [
        ("read_cr", 0),
        ("write_cr", 0x10),
        ("read_dr", 0x20),
        ("write_dr", 0x30),
    ] {
        if let Some(number) = name.strip_prefix(prefix) {
            let number: u32 = number.parse().ok().filter(|&number| number < 16)?;
            return Some((base + number, 2));
        }
    }
    let exception = name.strip_suffix(" excp").filter(|name| !name.is_empty())?;
    let vector = EXCEPTIONS.iter().position(|known| *known == exception)?;
    Some((0x40 + vector as u32, 2))
}

/// Returns the reason that `trace-cmd report` names for SVM: `EXIT_` and AMD's mnemonic.
fn mnemonic_reason(mnemonic: &str) -> Option<(u32, u32)> {
    let name = match mnemonic {
        "INTR" => "interrupt".to_owned(),
        "VMMCALL" => "hypercall".to_owned(),
        "IOIO" => "io".to_owned(),
        "TR_READ" => "read_rt".to_owned(),
        "TR_WRITE" => "write_rt".to_owned(),
        "ERR" => "invalid_guest_state".to_owned(),
        // Older ones name all exceptions by the first.
        "EXCP_BASE" => "DE excp".to_owned(),
        exception if exception.starts_with("EXCP_") => format!("{} excp", &exception[5..]),
        other => match (other.strip_suffix("_READ"), other.strip_suffix("_WRITE")) {
            (Some(table), _) => format!("read_{}", table.to_lowercase()),
            (_, Some(table)) if table != "CR0_SEL" => format!("write_{}", table.to_lowercase()),
            _ => other.to_lowercase(),
        },
    };
    exit_reason(&name)
}

#[cfg(test)]
mod tests {
    use super::{exit_name, exit_reason};

    #[test]
    fn mnemonics_of_trace_cmd_stand_for_reasons_of_svm() {
        for (name, reason) in [
            ("EXIT_INTR", 0x60),
            ("EXIT_MSR", 0x7c),
            ("EXIT_HLT", 0x78),
            ("EXIT_IOIO", 0x7b),
            ("EXIT_NPF", 0x400),
            ("EXIT_GDTR_READ", 0x67),
            ("EXIT_CR0_SEL_WRITE", 0x65),
            ("EXIT_READ_CR3", 3),
            ("EXIT_EXCP_BASE", 0x40),
            ("EXIT_EXCP_GP", 0x4d),
            ("EXIT_EXCP_XF", 0x53),
            ("EXIT_MWAIT_COND", 0x8c),
            ("EXIT_RDPRU", 0x8e),
            ("EXIT_AVIC_INCOMPLETE_IPI", 0x401),
        ] {
            assert_eq!(exit_reason(name), Some((reason, 2)), "{name}");
        }
        assert_eq!(exit_reason("EXIT_EXIT_HLT"), None);
        assert_eq!(exit_reason("EXIT_EXCP_"), None);
    }

    #[test]
    fn each_name_stands_for_its_reason() {
        for isa in [1, 2] {
            let mut named = 0;
            for reason in (0..0x500).chain([u32::MAX]) {
                if let Some(name) = exit_name(isa, reason) {
                    named += 1;
                    let all_flags = if isa == 1 { reason & 0xffff } else { reason };
                    assert_eq!(exit_reason(&name), Some((all_flags, isa)), "{name}");
                }
            }
            assert!(named > 60, "{named} names");
        }
        assert_eq!(exit_reason("PF excp"), Some((0x4e, 2)));
        assert_eq!(exit_reason("PAUSE_INSTRUCTION"), Some((40, 1)));
        assert_eq!(exit_reason(" excp"), None);
        assert_eq!(exit_name(0, 12), None);
    }
}
