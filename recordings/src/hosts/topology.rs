//! The pCPUs of a host: their cores, packages and nodes, from copies of sysfs and from `lscpu -J`.

use serde::Serialize;
use serde_json::Value;

/// The place of a pCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Its number in Linux.
    pub cpu: u32,
    /// Its core, as Linux numbers it in its package.
    pub core: Option<u32>,
    /// Its package.
    pub package: Option<u32>,
    /// Its node.
    pub node: Option<u32>,
}

/// Most pCPUs that Linux can have.
const CPUS_MAX: u32 = 8192;

/// Returns the numbers in a list as in `0-3,8`, or `None` if it is not one.
pub fn list(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= CPUS_MAX {
            return None;
        }
        numbers.extend(first..=last);
        if numbers.len() > CPUS_MAX as usize {
            return None;
        }
    }
    Some(numbers)
}

/// Returns the places that `lscpu -J -e` printed, or `None` if `text` is something else.
pub fn of_lscpu(text: &str) -> Option<Vec<Place>> {
    let document: Value = serde_json::from_str(text).ok()?;
    let rows = document.get("cpus")?.as_array()?;
    // Numbers are numbers or text, as the version has it.
    let number = |row: &Value, key: &str| -> Option<u32> {
        let value = row.get(key)?;
        let number = value.as_u64().or_else(|| value.as_str()?.trim().parse().ok())?;
        u32::try_from(number).ok()
    };
    let place = |row: &Value| {
        Some(Place {
            cpu: number(row, "cpu").filter(|cpu| *cpu < CPUS_MAX)?,
            core: number(row, "core"),
            package: number(row, "socket"),
            node: number(row, "node"),
        })
    };
    Some(rows.iter().take(CPUS_MAX as usize).filter_map(place).collect())
}

/// Returns whether `text` is a document of `lscpu -J`.
pub fn is_lscpu(text: &str) -> bool {
    let document: Option<Value> = serde_json::from_str(text).ok();
    document.is_some_and(|document| document.get("lscpu").is_some() || document.get("cpus").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_nonsense_is_not() {
        assert_eq!(list("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(list(""), Some(vec![]));
        for wrong in ["3-1", "x", "0-4294967295", "1-", "9000"] {
            assert_eq!(list(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn lscpu_is_read_in_both_spellings() {
        let text =
            r#"{"cpus":[{"cpu":0,"node":0,"socket":1,"core":4},{"cpu":"1","node":"-","socket":"1","core":"4"}]}"#;
        let places = of_lscpu(text).expect("a list");
        assert_eq!((places[0].core, places[0].node), (Some(4), Some(0)));
        assert_eq!((places[1].cpu, places[1].core, places[1].node), (1, Some(4), None));
        assert!(is_lscpu(text) && !is_lscpu("[]") && !is_lscpu("{"));
    }
}
