//! Both kinds of words behave alike; and a test of the race between compare-stores and announcements.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use proptest::prelude::*;

use super::{CompareStore, portable};

/// An operation on a word.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Store(u32),
    StoreLow8(u8),
    StoreLow16(u16),
    StoreByte1(u8),
    Swap(u32),
    SwapLow8(u8),
    SwapLow16(u16),
    SwapHigh16(u16),
    CompareExchange(u32, u32),
    CompareExchangeLow8(u8, u8),
    CompareExchangeLow16(u16, u16),
    CompareStoreLow8(u8, u8),
    CompareStoreLow16(u16, u16),
    FetchAdd(u32),
    FetchAddHigh16(u16),
    FetchOr(u32),
    FetchAnd(u32),
    LoadLow16,
    LoadByte1,
    LoadHigh16,
}

/// Returns the result of a comparison as a number.
fn code<T: Into<u64>, E: Into<u64>>(result: Result<T, E>) -> u64 {
    result.map_or_else(|found| found.into() | 1 << 32, Into::into)
}

/// Executes the operation. Returns its result as a number, and the word afterwards.
macro_rules! apply {
    ($word:expr, $operation:expr) => {{
        let word = $word;
        let returned: u64 = match $operation {
            Operation::Store(value) => {
                word.store(value, Release);
                0
            }
            Operation::StoreLow8(value) => {
                word.store_low8(value, Release);
                0
            }
            Operation::StoreLow16(value) => {
                word.store_low16(value, SeqCst);
                0
            }
            Operation::StoreByte1(value) => {
                word.store_byte1(value, Relaxed);
                0
            }
            Operation::Swap(value) => word.swap(value, AcqRel).into(),
            Operation::SwapLow8(value) => word.swap_low8(value, AcqRel).into(),
            Operation::SwapLow16(value) => word.swap_low16(value, AcqRel).into(),
            Operation::SwapHigh16(value) => word.swap_high16(value, AcqRel).into(),
            Operation::CompareExchange(current, new) => code(word.compare_exchange(current, new, AcqRel, Acquire)),
            Operation::CompareExchangeLow8(current, new) => {
                code(word.compare_exchange_low8(current, new, AcqRel, Acquire))
            }
            Operation::CompareExchangeLow16(current, new) => {
                code(word.compare_exchange_low16(current, new, AcqRel, Acquire))
            }
            Operation::CompareStoreLow8(current, new) => {
                code(word.compare_store_low8(current, new, Release).map(|()| 0u8))
            }
            Operation::CompareStoreLow16(current, new) => {
                code(word.compare_store_low16(current, new, Release).map(|()| 0u8))
            }
            Operation::FetchAdd(value) => word.fetch_add(value, AcqRel).into(),
            Operation::FetchAddHigh16(value) => word.fetch_add_high16(value, AcqRel).into(),
            Operation::FetchOr(bits) => word.fetch_or(bits, AcqRel).into(),
            Operation::FetchAnd(bits) => word.fetch_and(bits, AcqRel).into(),
            Operation::LoadLow16 => word.load_low16(Acquire).into(),
            Operation::LoadByte1 => word.load_byte1(Acquire).into(),
            Operation::LoadHigh16 => word.load_high16(Acquire).into(),
        };
        (returned, word.load(Acquire))
    }};
}

/// Returns one of a few values, so that comparisons succeed.
fn operation() -> impl Strategy<Value = Operation> {
    let byte = || prop_oneof![0..4u8, any::<u8>()];
    let half = || prop_oneof![0..4u16, any::<u16>()];
    let word = || prop_oneof![0..4u32, any::<u32>()];
    prop_oneof![
        word().prop_map(Operation::Store),
        byte().prop_map(Operation::StoreLow8),
        half().prop_map(Operation::StoreLow16),
        byte().prop_map(Operation::StoreByte1),
        word().prop_map(Operation::Swap),
        byte().prop_map(Operation::SwapLow8),
        half().prop_map(Operation::SwapLow16),
        half().prop_map(Operation::SwapHigh16),
        (word(), word()).prop_map(|(current, new)| Operation::CompareExchange(current, new)),
        (byte(), byte()).prop_map(|(current, new)| Operation::CompareExchangeLow8(current, new)),
        (half(), half()).prop_map(|(current, new)| Operation::CompareExchangeLow16(current, new)),
        (byte(), byte()).prop_map(|(current, new)| Operation::CompareStoreLow8(current, new)),
        (half(), half()).prop_map(|(current, new)| Operation::CompareStoreLow16(current, new)),
        word().prop_map(Operation::FetchAdd),
        half().prop_map(Operation::FetchAddHigh16),
        word().prop_map(Operation::FetchOr),
        word().prop_map(Operation::FetchAnd),
        Just(Operation::LoadLow16),
        Just(Operation::LoadByte1),
        Just(Operation::LoadHigh16),
    ]
}

proptest! {
    #[test]
    fn machine_words_do_what_portable_words_do(
        initial in any::<u32>(),
        operations in proptest::collection::vec(operation(), 1..40),
    ) {
        let (machine, portable) = (super::Word::new(initial), portable::Word::new(initial));
        for operation in operations {
            prop_assert_eq!(apply!(&machine, operation), apply!(&portable, operation), "{:?}", operation);
        }
    }
}

#[test]
fn machine_addresses_do_what_portable_addresses_do() {
    macro_rules! observe {
        ($address:expr) => {{
            let address = $address;
            let lost = address.compare_exchange(1, 2, AcqRel, Acquire);
            let won = address.compare_exchange(usize::MAX, 3, AcqRel, Acquire);
            let exchanged = address.load(Acquire);
            address.store(4, Release);
            (lost, won, exchanged, address.load(Relaxed))
        }};
    }
    let expected = (Err(usize::MAX), Ok(usize::MAX), 3, 4);
    assert_eq!(observe!(super::Address::new(usize::MAX)), expected);
    assert_eq!(observe!(portable::Address::new(usize::MAX)), expected);
}

/// Checks that each later compare-store sees an announcement that is still there after `settle`. Without `settle` some
/// compare-stores overwrite it.
#[test]
fn a_settled_announcement_is_not_overwritten() {
    overwrites_nothing(2_000, || ());
}

/// The same if the changeover to exchanges happens just before the announcement, so that the waiter need not interrupt
/// anything, and the changeover back after each round.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, holdfast_atomics))))]
#[test]
fn an_announcement_after_a_changeover_is_not_overwritten() {
    overwrites_nothing(60_000, super::rseq::tests::change_over);
}

/// Announces a waiter after `before`, again and again, while another thread unlocks.
fn overwrites_nothing(rounds: u32, before: impl Fn()) {
    const HELD: u8 = 1;
    const LISTED: u8 = 3;
    const SEEN: u32 = 1 << 31;
    let word = &super::Word::new(HELD.into());
    // Twice the number of the round. The unlocker increments it once it has compared.
    let turn = &super::Word::new(0);
    let mut overwritten = 0;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for round in 0..rounds {
                // ORDERING: Acquire and Release, here and below: each turn makes all earlier writes visible to the
                // next.
                while turn.load(Acquire) != 2 * round {
                    std::thread::yield_now();
                }
                let overwrote = word.compare_store_low8(HELD, 0, Release).is_ok();
                turn.store(if overwrote { 2 * round + 1 } else { SEEN }, Release);
            }
        });
        for round in 0..rounds {
            // A little later each time, so that the exchange happens at every moment of the compare-store.
            (0..round % 16).for_each(|_| core::hint::spin_loop());
            before();
            let found = word.swap_low8(LISTED, AcqRel);
            super::settle();
            let stays = found == HELD && word.load_low16(Acquire) as u8 == LISTED;
            let answer = loop {
                match turn.load(Acquire) {
                    now if now == 2 * round => std::thread::yield_now(),
                    now => break now,
                }
            };
            overwritten += u32::from(stays && answer != SEEN);
            word.store(HELD.into(), Relaxed);
            turn.store(2 * (round + 1), Release);
        }
    });
    assert_eq!(
        overwritten, 0,
        "settled announcements were overwritten, in so many of {rounds} rounds"
    );
}
