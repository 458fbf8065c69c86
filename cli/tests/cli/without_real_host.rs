//! The commands that run on the real machine, in a build that leaves them out.

use crate::command::holdfast;

#[test]
fn each_command_that_is_left_out_names_the_command_that_builds_it() {
    for arguments in [
        &["kvm", "doctor"][..],
        &["kvm", "run", "linux-pvspin", "--linux=a kernel", "--help"],
        &["bench"],
        &["calibrate", "--kvm"],
        &["record", "--seconds", "1"],
        &["validate", "kvm"],
        &["validate", "threads"],
    ] {
        let ran = holdfast(arguments);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{arguments:?}: {}", ran.err);
        let typed = arguments.join(" ").replace("--linux=a kernel", "'--linux=a kernel'");
        let command = format!("cargo run --release --features real-host -- {typed}\n");
        assert!(ran.err.ends_with(&command), "{arguments:?}: {}", ran.err);
    }
}
