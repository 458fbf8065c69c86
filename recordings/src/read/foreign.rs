//! KVM's events of hosts that are no x86: their exits have other fields, and other words.

/// What only one architecture has in `kvm_entry` or `kvm_exit`: a field, the words that are printed, and its name.
/// From `arch/*/kvm/trace*.h` of Linux.
const MARKS: [(&str, &str, &str); 3] = [
    ("vcpu_pc", "HSR_EC: ", "arm64"),
    ("esr_ec", "ESR_EC: ", "arm64"),
    ("scause", "SCAUSE:", "riscv64"),
];

/// Returns the architecture that has the event `name` with the field for which `has` holds, if it is another one.
pub(super) fn of_fields(name: &str, has: impl Fn(&str) -> bool) -> Option<&'static str> {
    let is_kvm = name.starts_with("kvm:");
    let mark = MARKS.iter().find(|(field, ..)| is_kvm && has(field));
    mark.map(|(.., architecture)| *architecture)
}

/// Returns the architecture whose kernel prints an event as `text`, if it is another one.
pub(super) fn of_text(text: &str) -> Option<&'static str> {
    let mark = MARKS.iter().find(|(_, words, _)| text.contains(words));
    let named = mark.map(|(.., architecture)| *architecture);
    named.or_else(|| text.contains("PC: 0x").then_some("arm64 or riscv64"))
}

/// Returns what is said of the event `name` of `architecture`.
pub(super) fn said(name: &str, architecture: &str) -> String {
    format!("`{name}` of {architecture} (of KVM only the events of x86)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_architectures_are_named() {
        assert_eq!(of_fields("kvm:kvm_exit", |field| field == "vcpu_pc"), Some("arm64"));
        assert_eq!(of_fields("kvm:kvm_exit", |field| field == "exit_reason"), None);
        let exit = "kvm_exit: TRAP: HSR_EC: 0x0001 (WFx), PC: 0xffff800008c9d1a4";
        assert_eq!(of_text(exit), Some("arm64"));
        assert_eq!(of_text("kvm_exit: SEPC:0x0, SCAUSE:0x5, STVAL:0x0"), Some("riscv64"));
        assert_eq!(of_text("kvm_entry: PC: 0xffff800008c9d1a4"), Some("arm64 or riscv64"));
        assert_eq!(of_text("kvm_exit: reason HLT rip 0x10"), None);
    }
}
