//! The share of the full-size work that a run does.

/// Smallest scale. Below it no workload has anything left to do.
const SCALE_MIN: f64 = 1e-9;

/// Returns what was found and what was expected, if `scale` cannot be a scale.
pub(crate) fn bad_scale(scale: f64) -> Option<(String, &'static str)> {
    match scale {
        scale if !(scale > 0.0 && scale <= 1.0) => Some((scale.to_string(), "a number above 0, up to 1")),
        scale if scale < SCALE_MIN => {
            let expected = "at least 1e-9: a smaller share leaves nothing to do";
            Some((format!("{scale:e}"), expected))
        }
        _ => None,
    }
}
