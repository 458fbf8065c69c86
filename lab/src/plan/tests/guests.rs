//! Identical guests by their count.

use super::*;

/// [`SMALL`] with three identical guests that build.
fn three() -> String {
    SMALL.replacen("name = \"build\"", "name = \"build\"\ncount = 3", 1)
}

#[test]
fn a_count_stands_for_as_many_identical_guests() {
    let text = three();
    let planned = plan(&text);
    let config = &planned.cells[1].config;
    let names: Vec<&str> = config.vms.iter().map(|vm| vm.name.as_str()).collect();
    assert_eq!(names, ["build-1", "build-2", "build-3", "noise"]);
    let by_hand =
        ["build-1", "build-2", "build-3"].map(|name| format!("[[vm]]\nname = \"{name}\"\nworkload = \"kernbench\"\n"));
    let written = SMALL.replacen(
        "[[vm]]\nname = \"build\"\nworkload = \"kernbench\"\n",
        &by_hand.concat(),
        1,
    );
    let written = plan(&written);
    for (counted, written) in planned.cells.iter().zip(&written.cells) {
        assert_eq!(format!("{:?}", counted.config), format!("{:?}", written.config));
    }
}

#[test]
fn a_path_names_all_identical_guests_or_one() {
    let options = Options {
        set: vec!["vm.build.vcpus=3".to_owned(), "vm.build-2.hz=250".to_owned()],
        ..Options::default()
    };
    let planned = plan_with(&three(), &options).expect("valid options");
    let vms = &planned.cells[0].config.vms;
    assert_eq!(vms.iter().map(|vm| vm.vcpus).collect::<Vec<_>>(), [3, 3, 3, 2]);
    assert_eq!(
        vms.iter().map(|vm| vm.boot.kernel.hz).collect::<Vec<_>>(),
        [1000, 250, 1000, 1000]
    );
}

#[test]
fn impossible_counts_are_refused_once() {
    for (count, found) in [
        ("0", "found 0"),
        ("-1", "found -1"),
        ("\"two\"", "found \"two\""),
        ("100000", "found 100000"),
    ] {
        let complaint = complaint(&three().replacen("count = 3", &format!("count = {count}"), 1));
        assert!(
            complaint.starts_with("small.toml:12: vm.0.count: ") && complaint.contains(found),
            "{complaint}"
        );
    }
    let wrong = complaint(&three().replacen("count = 3", "count = 3\nlock = \"tickt\"", 1));
    assert_eq!(wrong.lines().count(), 1, "{wrong}");
    assert!(
        wrong.starts_with("small.toml:13: vm.build.lock: found \"tickt\""),
        "{wrong}"
    );
    let twice = complaint(&three().replacen("name = \"noise\"", "name = \"build\"", 1));
    assert!(twice.contains("expected a name of its own"), "{twice}");
}
