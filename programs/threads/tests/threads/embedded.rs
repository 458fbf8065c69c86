//! The locks as programs use them: through `lock_api`, both versions.

use holdfast_threads::*;

/// Tests one lock under one version of `lock_api`.
macro_rules! excludes {
    ($lock_api:ident, $raw:ty) => {{
        static LOCK: $lock_api::Mutex<$raw, u64> = $lock_api::Mutex::new(0);
        assert_eq!(size_of::<$lock_api::Mutex<$raw, [u8; 4]>>(), 8);
        crate::on_threads((0..2).map(|_| || (0..2_000).for_each(|_| *LOCK.lock() += 1)));
        let held = LOCK.lock();
        assert_eq!(*held, 4_000, "updates under the lock were lost");
        assert!(LOCK.is_locked());
        assert!(LOCK.try_lock().is_none(), "a held lock was given to its holder again");
        drop(held);
        assert!(!LOCK.is_locked());
        assert_eq!(
            LOCK.try_lock().map(|guard| *guard),
            Some(4_000),
            "a free lock was refused"
        );
    }};
}

macro_rules! each_excludes {
    ($($(#[$doc:meta])* $raw:ident = $algorithm:ty;)+) => {$(
        assert_eq!(size_of::<$raw>(), 4);
        excludes!(lock_api, $raw);
        excludes!(lock_api_04, $raw);
    )+};
}

#[test]
fn each_lock_excludes_under_both_versions_in_four_bytes() {
    let _turn = crate::numbers();
    for_each_raw_lock!(each_excludes);
}

/// A lock may be used through both versions at the same time, because it is the same lock.
#[test]
fn versions_exclude_each_other() {
    let lock = <RawHybrid as lock_api::RawMutex>::INIT;
    lock_api_04::RawMutex::lock(&lock);
    assert!(lock_api::RawMutex::try_lock(&lock).is_none());
    // SAFETY: locked above.
    #[expect(unsafe_code, reason = "unlocks without a guard")]
    unsafe {
        lock_api_04::RawMutex::unlock(&lock);
    }
    assert!(lock_api::RawMutex::try_lock(&lock).is_some());
}
