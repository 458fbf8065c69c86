//! The units of cgroup v2: `cpu.max` and `cpu.weight`.

use crate::document::Value;
use crate::groups::Limit;

/// Weight of cgroup v2 that equals the default shares.
const WEIGHT_DEFAULT: u64 = 100;
/// Shares of cgroup v1 that equal it.
const SHARES_DEFAULT: u64 = 1024;

/// What `cpu.max` takes.
pub(super) const EXPECTED_MAX: &str =
    "\"QUOTA PERIOD\" in microseconds as in cpu.max, such as \"200000 100000\" or \"max\"";

/// Reads `cpu.max`: `"200000 100000"`, `"200000"` or `"max 100000"`. Without a period it stays as it is in Linux,
/// 100 ms.
pub(super) fn limit(value: &Value) -> Option<Limit> {
    let text = match value {
        Value::Text(text) => text.clone(),
        Value::Integer(micros) => micros.to_string(),
        _ => return None,
    };
    let nanos = |micros: &str| micros.parse::<u64>().ok()?.checked_mul(1_000);
    let mut words = text.split_whitespace();
    let quota_ns = match words.next()? {
        "max" => None,
        micros => Some(nanos(micros)?),
    };
    let period_ns = match words.next() {
        None => Limit::default().period_ns,
        Some(micros) => nanos(micros).filter(|nanos| *nanos > 0)?,
    };
    words.next().is_none().then_some(Limit {
        quota_ns,
        period_ns,
        ..Limit::default()
    })
}

/// Returns `limit` as `cpu.max` has it.
pub(super) fn show_limit(limit: &Limit) -> String {
    let quota = limit
        .quota_ns
        .map_or_else(|| "max".to_owned(), |quota| (quota / 1_000).to_string());
    format!("\"{quota} {}\"", limit.period_ns / 1_000)
}

/// Returns the shares of a `weight` from 1 to 10000, as Linux converts them (`sched_weight_from_cgroup`).
pub(super) fn shares(weight: u64) -> u64 {
    (weight * SHARES_DEFAULT + WEIGHT_DEFAULT / 2) / WEIGHT_DEFAULT
}

/// Returns the weight of `shares`.
pub(super) fn weight(shares: u64) -> u64 {
    ((shares * WEIGHT_DEFAULT + SHARES_DEFAULT / 2) / SHARES_DEFAULT).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        let read = |text: &str| limit(&Value::Text(text.to_owned()));
        let of = |quota_ns, period_ns| {
            Some(Limit {
                quota_ns,
                period_ns,
                ..Limit::default()
            })
        };
        assert_eq!(read("200000 100000"), of(Some(200_000_000), 100_000_000));
        assert_eq!(read("max 50000"), of(None, 50_000_000));
        assert_eq!(read("max"), of(None, 100_000_000));
        assert_eq!(read("150000"), of(Some(150_000_000), 100_000_000));
        for wrong in ["", "200 ms", "max max", "1 2 3", "-1", "100000 0"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let shown = show_limit(&read("200000 100000").expect("a limit"));
        assert_eq!(shown, "\"200000 100000\"");
    }

    #[test]
    fn every_weight_comes_back() {
        assert_eq!((shares(1), shares(100), shares(10_000)), (10, 1024, 102_400));
        for one in 1..=10_000 {
            assert_eq!(weight(shares(one)), one);
        }
    }
}
