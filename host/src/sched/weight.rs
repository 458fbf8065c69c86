//! Weights of nice levels, and time scaled by weight (docs/spec/host.md, "Weights and groups").

/// Weight of nice 0.
pub(crate) const NICE_0: u64 = 1024;

/// Least weight of a group's entity, and least `cpu.shares`.
pub(crate) const MIN_SHARES: u64 = 2;

/// Weight of each nice level from -20 to 19: a factor of about 1.25 per step, so that one step is about 10 % of a CPU
/// between two threads. The figures are the kernel's (`prio_to_weight`).
#[rustfmt::skip]
const NICE_WEIGHTS: [u64; 40] = [
    88761, 71755, 56483, 46273, 36291,
    29154, 23254, 18705, 14949, 11916,
    9548, 7620, 6100, 4904, 3906,
    3121, 2501, 1991, 1586, 1277,
    1024, 820, 655, 526, 423,
    335, 272, 215, 172, 137,
    110, 87, 70, 56, 45,
    36, 29, 23, 18, 15,
];

/// Returns the weight of nice level `nice`, which must be -20 to 19.
pub(crate) fn of_nice(nice: i8) -> u64 {
    NICE_WEIGHTS[(i32::from(nice) + 20) as usize]
}

/// Returns `value * factor / divisor` without intermediate overflow. A divisor of 0 counts as 1.
pub(crate) fn mul_div(value: u64, factor: u64, divisor: u64) -> u64 {
    let divisor = divisor.max(1);
    match value.checked_mul(factor) {
        Some(product) => product / divisor,
        None => (u128::from(value) * u128::from(factor) / u128::from(divisor)) as u64,
    }
}

/// Returns `ns` of real time as virtual time of an entity of `weight`.
pub(crate) fn scaled(ns: u64, weight: u64) -> u64 {
    if weight == NICE_0 {
        ns
    } else {
        mul_div(ns, NICE_0, weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nice_step_is_about_a_quarter() {
        for nice in -20..19i8 {
            let ratio = of_nice(nice) as f64 / of_nice(nice + 1) as f64;
            assert!((1.15..1.36).contains(&ratio), "nice {nice}: {ratio}");
        }
        assert_eq!(of_nice(0), NICE_0);
    }

    #[test]
    fn mul_div_survives_overflow() {
        assert_eq!(mul_div(u64::MAX, 3, 3), u64::MAX);
        assert_eq!(mul_div(10, 7, 0), 70);
        assert_eq!(scaled(3_000_000, 512), 6_000_000);
    }
}
