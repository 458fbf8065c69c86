//! The operations of platforms whose words are machine words.

/// Defines the word operations inside an `impl Platform`.
///
/// `$word` and `$address` are the platform's word types. Each wraps a type that has methods of the same names, to which
/// the operations forward by one inlined call. The `SAFETY` comment of the `impl` must argue that each method has the
/// ordering that it is given, or a stronger one.
///
/// Not defined: what differs between platforms (`cpu`, `fence`, `relax`, waiting, `compare_store_*`).
#[macro_export]
macro_rules! operations_of_words {
    ($word:ty, $address:ty) => {
        #[inline(always)]
        fn key(&self, word: &$word) -> usize {
            ::core::ptr::from_ref(word).addr()
        }
        $crate::operations_of_words! { @forward $word;
            load() -> u32;
            load_low16() -> u16;
            load_byte1() -> u8;
            load_high16() -> u16;
            swap(value: u32) -> u32;
            swap_low8(value: u8) -> u8;
            swap_low16(value: u16) -> u16;
            swap_high16(value: u16) -> u16;
            store(value: u32) -> ();
            store_low8(value: u8) -> ();
            store_low16(value: u16) -> ();
            store_byte1(value: u8) -> ();
            fetch_add(value: u32) -> u32;
            fetch_add_high16(value: u16) -> u32;
            fetch_or(bits: u32) -> u32;
            fetch_and(bits: u32) -> u32;
        }
        $crate::operations_of_words! { @exchange $word;
            compare_exchange, compare_exchange, u32;
            compare_exchange_low8, compare_exchange_low8, u8;
            compare_exchange_low16, compare_exchange_low16, u16;
        }
        #[inline(always)]
        fn load_address(&self, word: &$address, order: ::core::sync::atomic::Ordering) -> usize {
            word.0.load(order)
        }
        #[inline(always)]
        fn store_address(&self, word: &$address, value: usize, order: ::core::sync::atomic::Ordering) {
            word.0.store(value, order);
        }
        $crate::operations_of_words! { @exchange $address; compare_exchange_address, compare_exchange, usize; }
    };
    (@forward $word:ty; $($name:ident($($argument:ident: $value:ty)?) -> $result:ty;)+) => {$(
        #[inline(always)]
        fn $name(&self, word: &$word, $($argument: $value,)? order: ::core::sync::atomic::Ordering) -> $result {
            word.0.$name($($argument,)? order)
        }
    )+};
    (@exchange $word:ty; $($name:ident, $method:ident, $value:ty;)+) => {$(
        #[inline(always)]
        fn $name(
            &self,
            word: &$word,
            current: $value,
            new: $value,
            success: ::core::sync::atomic::Ordering,
            failure: ::core::sync::atomic::Ordering,
        ) -> Result<$value, $value> {
            word.0.$method(current, new, success, failure)
        }
    )+};
}
