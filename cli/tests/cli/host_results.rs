//! Reports about results of a real host.

use std::fs;

use crate::command::{holdfast_in, scratch};

/// Two variants of `lock-crossover`, measured on the KVM of the test host.
const REAL_HOST: &str = include_str!("../../../lab/tests/integration/real-host.json");

#[test]
fn what_a_real_host_cannot_know_is_not_said() {
    let folder = scratch();
    fs::write(folder.path().join("kvm.json"), REAL_HOST).expect("writable");
    let explained = holdfast_in(folder.path(), &["explain", "kvm.json"]);
    assert_eq!(explained.status, 0, "{}", explained.err);
    // That samples differ is said of a real host, too.
    let warning = "warning: samples of 2 of 2 cells differ twofold or more";
    assert!(
        explained.err.starts_with(warning) && explained.err.lines().count() == 1,
        "{}",
        explained.err
    );
    for said in [
        "measured on this host: ",
        "whether there was a convoy. A real host cannot see these",
        "| ready, without a CPU, s",
        "| kvm.vcpu.halt_exits",
    ] {
        assert!(explained.out.contains(said), "{said}: {}", explained.out);
    }
    for unsaid in ["no convoy", "0 of 2", "verdict", "| useful"] {
        assert!(!explained.out.contains(unsaid), "{unsaid}: {}", explained.out);
    }
    let document = holdfast_in(folder.path(), &["explain", "kvm.json", "--format", "json"]).json();
    assert_eq!(document["of_real_host"], true);
    assert!(document["rows"][0]["convoys"].is_null());
    assert!(document["rows"][0]["host_figures"]["without_cpu"].is_number());

    let compared = holdfast_in(folder.path(), &["compare", "kvm.json"]);
    assert_eq!(compared.status, 0, "{}", compared.err);
    assert!(
        compared.out.contains("Remark: these are from a real host, "),
        "{}",
        compared.out
    );
    assert!(!compared.out.contains("Paired by seed"), "{}", compared.out);

    let reported = holdfast_in(folder.path(), &["report", "kvm.json"]);
    assert_eq!(reported.status, 0, "{}", reported.err);
    let page = fs::read_to_string(folder.path().join("kvm.html")).expect("a page");
    assert!(page.contains("Time of the vCPU threads on a real host") && !page.contains("no convoy"));
}

#[test]
fn what_is_no_results_of_ours_is_called_what_it_is() {
    let folder = scratch();
    fs::write(
        folder.path().join("threads.json"),
        "{\"schema\": \"holdfast.reality/1\"}",
    )
    .expect("writable");
    for command in ["explain", "compare", "report"] {
        let ran = holdfast_in(folder.path(), &[command, "threads.json"]);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""));
        assert!(
            ran.err.contains("(of `holdfast validate threads` or `kvm`: ") && ran.err.contains("it could not know"),
            "{}",
            ran.err
        );
    }
}
