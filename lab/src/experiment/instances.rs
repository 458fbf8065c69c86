//! Reads the tables of guests, groups and tasks: their names, and identical guests by their `count`.

use super::flatten;
use crate::document::{Node, Reader, Table, Value};
use crate::keys::{Family, Setting};

/// Returns the names of the guests, groups or tasks under `key`, and adds their settings to `base`. Also returns the
/// guests that are identical by their `count`.
pub(super) fn instances(
    reader: &mut Reader<'_, '_>,
    key: &'static str,
    max: usize,
    base: &mut Vec<Setting>,
) -> (Vec<String>, Vec<Family>) {
    let mut names: Vec<String> = Vec::new();
    let mut families: Vec<Family> = Vec::new();
    for (index, (table, place)) in reader.tables(key).into_iter().enumerate() {
        let path = format!("{key}.{index}");
        let room = max - names.len();
        if room == 0 {
            let found = format!("more than {max} of them");
            reader.findings().add(place, key, found, format!("at most {max}"));
            break;
        }
        let Some(name) = name(reader, (table, &path), (key, index), (&names, &families)) else {
            continue;
        };
        // Part of the structure; everything else is a setting.
        let mut rest = table.clone();
        rest.entries.retain(|(name, _)| name != "name");
        let count = rest.entries.iter().position(|(name, _)| key == "vm" && name == "count");
        let Some(count) = count.map(|count| rest.entries.remove(count).1) else {
            // The numbers of guests after those with a count depend on the cell.
            match families.is_empty() {
                true => flatten(&rest, &format!("{key}.{}", names.len()), base),
                false => flatten(&rest, &format!("{key}.{name}"), base),
            }
            names.push(name);
            continue;
        };
        let copies = match count.value {
            Value::Integer(copies) => usize::try_from(copies)
                .ok()
                .filter(|copies| (1..=room).contains(copies)),
            _ => None,
        };
        let members = (1..=copies.unwrap_or(0)).map(|number| format!("{name}-{number}"));
        let members: Vec<String> = members.collect();
        if copies.is_none() || members.iter().any(|member| names.contains(member)) {
            let expected = format!("1 to {room} guests, and no other guest named {name}-1 and so on");
            let found = count.value.to_string();
            reader
                .findings()
                .add(&count.place, format!("{path}.count"), found, expected);
            continue;
        }
        flatten(&rest, &format!("{key}.{name}"), base);
        families.push(Family {
            name,
            first: names.len(),
            count: members.len(),
            stated: members.len(),
        });
        names.extend(members);
    }
    (names, families)
}

/// Returns the name of the instance in `table`: the given one, or `key` with its `index`. Reports a bad name.
fn name(
    reader: &mut Reader<'_, '_>,
    (table, path): (&Table, &str),
    (key, index): (&str, usize),
    (names, families): (&[String], &[Family]),
) -> Option<String> {
    let named = table.entries.iter().find(|(name, _)| name == "name");
    match named.map(|(_, node)| node) {
        None => Some(key.to_owned() + &index.to_string()),
        Some(Node {
            value: Value::Text(name),
            ..
        }) if is_name(name)
            && !names.contains(name)
            && !families.iter().any(|family| family.name == *name)
            && (key, name.as_str()) != ("group", "root") =>
        {
            Some(name.clone())
        }
        Some(node) => {
            let expected = "a name of its own: letters, digits, - and _, not only digits, and no group \"root\"";
            reader
                .findings()
                .add(&node.place, format!("{path}.name"), node.value.to_string(), expected);
            None
        }
    }
}

fn is_name(name: &str) -> bool {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    plain && !name.is_empty() && !name.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use crate::experiment::Experiment;

    #[test]
    fn guests_by_count_and_others_share_one_limit() {
        let head = "name = \"x\"\ntitle = \"x\"\nmetric = \"elapsed\"\n";
        let vms = |counts: &[&str]| -> String { counts.iter().map(|count| format!("[[vm]]\n{count}\n")).collect() };
        for (counts, expected) in [
            (&["count = 255", ""][..], None),
            (
                &["count = 256", ""],
                Some("vm: found more than 256 of them, expected at most 256"),
            ),
            (
                &["", "count = 256"],
                Some("vm.1.count: found 256, expected 1 to 255 guests"),
            ),
            (
                &["count = 256", "", "count = 2"],
                Some("vm: found more than 256 of them"),
            ),
        ] {
            let read = Experiment::parse("x.toml", &format!("{head}{}", vms(counts)));
            match (read, expected) {
                (Ok(read), None) => assert_eq!(read.names.vms.len(), 256),
                (Err(problems), Some(expected)) => {
                    assert!(problems.to_string().contains(expected), "{counts:?}: {problems}");
                }
                (read, _) => panic!("{counts:?}: {:?}", read.err()),
            }
        }
    }
}
