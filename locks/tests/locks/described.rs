//! The table of locks in the head of the crate says what the locks state of themselves.

use holdfast_locks::LockKind;

/// A row of the table: the kinds that it names, and its other cells.
struct Row {
    kinds: Vec<LockKind>,
    order: &'static str,
    waits: &'static str,
    needs: &'static str,
}

/// Returns the kind of the type that is called `name`.
fn kind_of_type(name: &str) -> LockKind {
    macro_rules! find {
        ([] $($module:ident: $kind:ident = $label:literal,)+) => {
            match name {
                $(stringify!($kind) => LockKind::$kind,)+
                _ => panic!("the table names {name}, which is no lock"),
            }
        };
    }
    holdfast_locks::for_each_lock_kind!(find)
}

fn types_in(cell: &str) -> Vec<LockKind> {
    let names = cell.split("[`").skip(1);
    names
        .map(|rest| kind_of_type(rest.split_once('`').expect("a name ends").0))
        .collect()
}

/// Returns the table, with "as above", "as" another lock and "likewise" replaced by what they refer to.
fn table() -> Vec<Row> {
    let head = include_str!("../../src/lib.rs")
        .lines()
        .take_while(|line| line.starts_with("//!"));
    let mut rows: Vec<Row> = Vec::new();
    for line in head.filter(|line| line.starts_with("//! | [`")) {
        let cells: Vec<&str> = line.trim_start_matches("//!").split('|').map(str::trim).collect();
        let [_, locks, order, waits, needs, _] = cells[..] else {
            panic!("a row has four cells: {line}");
        };
        let above = rows.last();
        let of_above = |cell, field: fn(&Row) -> &'static str| match (cell, above) {
            ("likewise", Some(above)) => field(above),
            (cell, _) => cell,
        };
        let (waits, needs) = (of_above(waits, |row| row.waits), of_above(needs, |row| row.needs));
        rows.push(Row {
            kinds: types_in(locks),
            order,
            waits,
            needs,
        });
    }
    rows
}

#[test]
fn the_table_of_the_crate_has_each_lock_once_and_says_what_it_states() {
    let rows = table();
    let mut named: Vec<LockKind> = rows.iter().flat_map(|row| row.kinds.iter().copied()).collect();
    named.sort();
    assert_eq!(named, LockKind::ALL);
    for row in &rows {
        for &kind in &row.kinds {
            let fair = row.order == "arrival" || row.order.starts_with("arrival, on");
            assert_eq!(fair, kind.is_fifo(), "{kind}: order");
            assert_eq!(row.waits.contains("halts"), kind.halts(), "{kind}: waits");
            assert_eq!(row.needs.contains("Paravirt"), kind.kicks(), "{kind}: needs");
            if let Some((_, most)) = row.order.split_once("up to ") {
                assert_eq!(most, format!("{} CPUs", kind.cpus_max()), "{kind}: CPUs");
            }
        }
    }
}
