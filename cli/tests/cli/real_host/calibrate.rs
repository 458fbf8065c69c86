//! `holdfast calibrate` and `holdfast validate threads`: bad input. Tests cannot check the
//! measured figures.

use crate::command::{holdfast, holdfast_in, scratch};

#[test]
fn an_unknown_base_profile_is_answered_with_the_known_ones() {
    let ran = holdfast(&["calibrate", "--base", "xeon-x5571"]);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
    assert!(
        ran.err
            .contains("found \"xeon-x5571\", expected a TOML file, or one of ")
            && ran.err.contains("did you mean \"xeon-x5570\"?"),
        "{}",
        ran.err
    );
}

#[test]
fn a_profile_that_cannot_be_read_or_is_wrong_is_located() {
    let folder = scratch();
    let ran = holdfast_in(folder.path(), &["calibrate", "--base", "mine.toml"]);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("mine.toml: cannot read it"), "{}", ran.err);
    std::fs::write(folder.path().join("mine.toml"), "name = 3\n").expect("writable");
    for arguments in [
        ["calibrate", "--base", "mine.toml", "--samples", "5"].as_slice(),
        ["validate", "threads", "--profile", "mine.toml"].as_slice(),
    ] {
        let ran = holdfast_in(folder.path(), arguments);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{arguments:?}");
        assert!(
            ran.err.contains("error: mine.toml:1: name: found 3, expected "),
            "{}",
            ran.err
        );
    }
}

#[test]
fn a_profile_is_a_toml_file() {
    let ran = holdfast(&["calibrate", "--out", "here.json"]);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
    assert!(
        ran.err.contains("found \"here.json\", expected --out to end in .toml"),
        "{}",
        ran.err
    );
}

#[test]
fn each_comparison_takes_only_what_changes_it() {
    for (arguments, message) in [
        (
            &["threads", "--scale", "0.1"][..],
            "unexpected argument '--scale' found",
        ),
        (&["threads", "boot-64"], "unexpected argument 'boot-64' found"),
        (&["threads", "--linux"], "unexpected argument '--linux' found"),
        (&["threads", "--contenders", "0"], "0 is not in 1..=64"),
        (&["kvm", "--linux", "--sections", "500"], "cannot be used with"),
        (&["linux-sched", "--seeds", "2"], "unexpected argument '--seeds' found"),
        (&["linux-sched", "--out", "here"], "--measure <SERIES,SERIES>"),
        (&["linux-sched", "nobody"], "found \"nobody\", expected one of"),
    ] {
        let ran = holdfast(&[&["validate"], arguments].concat());
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{arguments:?}");
        assert!(ran.err.contains(message), "{arguments:?}: {}", ran.err);
    }
}
