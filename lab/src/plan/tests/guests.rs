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
        set: vec!["vm.build.vcpus=3".to_owned(), "vm.build-2.hz=100".to_owned()],
        ..Options::default()
    };
    let planned = plan_with(&three(), &options).expect("valid options");
    let vms = &planned.cells[0].config.vms;
    assert_eq!(vms.iter().map(|vm| vm.vcpus).collect::<Vec<_>>(), [3, 3, 3, 2]);
    assert_eq!(
        vms.iter().map(|vm| vm.boot.kernel.hz).collect::<Vec<_>>(),
        [250, 100, 250, 250]
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

/// A key that reaches guests by `*` or `guest` is refused where none takes it, however it is set.
#[test]
fn a_key_that_nothing_takes_is_refused_however_it_is_set() {
    let refused = |text: &str, options: &Options| {
        let message = plan_with(text, options).expect_err("no guest takes it").to_string();
        assert!(message.contains("a key that nothing"), "{message}");
    };
    let set = |text: &str| Options {
        set: vec![text.to_owned()],
        ..Options::default()
    };
    for text in [
        "vm.*.quota=10ms",
        "guest.quota=10ms",
        "guest.hackbench.threads=true",
        "task.*.nice=3",
    ] {
        refused(SMALL, &set(text));
    }
    let sweep = Options {
        sweep: vec!["guest.quota=10ms,20ms".to_owned()],
        ..Options::default()
    };
    refused(SMALL, &sweep);
    let by_file = SMALL.replace("lock = \"ticket\"\n", "lock = \"ticket\"\nquota = \"10 ms\"\n");
    refused(&by_file, &Options::default());
    let by_variant = SMALL.replace("{ \"vm.*.lock\"", "{ \"vm.*.shares\" = 2, \"vm.*.lock\"");
    refused(&by_variant, &Options::default());
    // One guest that takes it in one cell is enough, even where its value is replaced.
    for text in ["guest.kernbench.jobs=4", "guest.lock=tas", "vm.*.kernbench.units=3"] {
        plan_with(SMALL, &set(text)).unwrap_or_else(|problems| panic!("{text}: {problems}"));
    }
    let grouped = SMALL.replace("{ \"vm.*.lock\"", "{ \"vm.build.cgroup\" = \"own\", \"vm.*.lock\"");
    plan_with(&grouped, &set("vm.*.quota=10ms")).unwrap_or_else(|problems| panic!("{problems}"));
}

#[test]
fn the_number_of_guests_can_be_swept() {
    let options = Options {
        sweep: vec!["vm.build.count=1,5".to_owned()],
        set: vec!["vm.build-1.vcpus=3".to_owned()],
        variants: vec!["ticket".to_owned()],
        ..Options::default()
    };
    let planned = plan_with(&three(), &options).expect("valid options");
    let of = |cell: usize| {
        let vms = &planned.cells[cell].config.vms;
        vms.iter().map(|vm| (vm.name.as_str(), vm.vcpus)).collect::<Vec<_>>()
    };
    assert_eq!(of(0), [("build-1", 3), ("noise", 2)]);
    let builds = ["build-1", "build-2", "build-3", "build-4", "build-5"];
    let five: Vec<(&str, u32)> = builds.into_iter().zip([3, 4, 4, 4, 4]).chain([("noise", 2)]).collect();
    assert_eq!(of(1), five);
    for wrong in ["0", "257", "\"many\""] {
        let options = Options {
            set: vec![format!("vm.build.count={wrong}")],
            ..Options::default()
        };
        let refused = plan_with(&three(), &options).expect_err(wrong).to_string();
        assert!(
            refused.contains("vm.build.count: ") && refused.contains("1 to 256 guests"),
            "{refused}"
        );
    }
}
