//! The memory functions that compiled code calls, for binaries without a C library. Their contracts are those of C.

/// Copies `count` bytes, which must not overlap.
///
/// # Safety
/// The contract is that of the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "sysv64" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    core::arch::naked_asm!(
        "mov rax, rdi",
        "mov rcx, rdx",
        "shr rcx, 3",
        "rep movsq",
        "mov ecx, edx",
        "and ecx, 7",
        "rep movsb",
        "ret",
    )
}

/// Copies `count` bytes, which may overlap.
///
/// # Safety
/// The contract is that of the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "sysv64" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    core::arch::naked_asm!(
        "mov rax, rdi",
        "mov rcx, rdi",
        "sub rcx, rsi",
        "cmp rcx, rdx",
        "jae {memcpy}",
        // The target begins within the source, so the copy goes downwards.
        "lea rdi, [rdi + rdx - 1]",
        "lea rsi, [rsi + rdx - 1]",
        "mov rcx, rdx",
        "std",
        "rep movsb",
        "cld",
        "ret",
        memcpy = sym memcpy,
    )
}

/// Fills `count` bytes.
///
/// # Safety
/// The contract is that of the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "sysv64" fn memset(to: *mut u8, value: i32, count: usize) -> *mut u8 {
    core::arch::naked_asm!(
        "mov r9, rdi",
        "movzx eax, sil",
        "mov r8, 0x0101010101010101",
        "imul rax, r8",
        "mov rcx, rdx",
        "shr rcx, 3",
        "rep stosq",
        "mov ecx, edx",
        "and ecx, 7",
        "rep stosb",
        "mov rax, r9",
        "ret",
    )
}

/// Compares `count` bytes.
///
/// # Safety
/// The contract is that of the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "sysv64" fn memcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
    core::arch::naked_asm!(
        "mov rcx, rdx",
        "xor eax, eax",
        "test rcx, rcx",
        "jz 2f",
        "repe cmpsb",
        "je 2f",
        "movzx eax, byte ptr [rdi - 1]",
        "movzx ecx, byte ptr [rsi - 1]",
        "sub eax, ecx",
        "2:",
        "ret",
    )
}

/// Returns 0 if `count` bytes are equal.
///
/// # Safety
/// The contract is that of the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "sysv64" fn bcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
    core::arch::naked_asm!("jmp {memcmp}", memcmp = sym memcmp)
}
