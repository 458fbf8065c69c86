//! The probe's count of cache lines (`testhost/locks/lines.h`) against its own test program, and with planted faults.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `lines_test.c` with `header` as `lines.h`. Returns its output, which is empty if all properties hold.
/// `None`: no C compiler.
fn properties_that_fail(name: &str, header: &str) -> Option<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("testhost/locks/lines_test.c");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("lines.h"), header).expect("write the header");
    std::fs::copy(source, folder.join("lines_test.c")).expect("copy the test");
    let program = folder.join("lines_test");
    let compiler = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-o"])
        .args([program.as_os_str(), folder.join("lines_test.c").as_os_str()])
        .output();
    let Ok(compiled) = compiler else {
        println!("SKIPPED: {name}: no C compiler");
        return None;
    };
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    assert_eq!(String::from_utf8_lossy(&compiled.stderr), "", "warnings");
    let run = Command::new(program).output().expect("the test program");
    let output = String::from_utf8(run.stdout).expect("text");
    assert_eq!(run.status.success(), output.is_empty(), "{output}");
    Some(output)
}

fn header() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testhost/locks/lines.h");
    std::fs::read_to_string(path).expect("the probe's header")
}

#[test]
fn lines_are_counted_once_and_classified() {
    if let Some(output) = properties_that_fail("lines", &header()) {
        assert_eq!(output, "");
    }
}

#[test]
fn planted_faults_in_the_count_of_lines_are_caught() {
    for (fault, good, bad, property) in [
        (
            "twice",
            "if (!touched->loaded && !touched->stored)",
            "if (true)",
            "a line counts once",
        ),
        (
            "stores",
            "section->stored += stores && !touched->stored;",
            "section->stored += stores;",
            "lines stored",
        ),
        (
            "copies",
            "        line->copies = mine;\n",
            "        line->copies |= mine;\n",
            "changed, read, untouched",
        ),
        (
            "capacity",
            "cached ? OWN : COLD;",
            "cached ? OWN : OWN;",
            "lost, and recent",
        ),
        ("lock", ">> LINE_BITS == line)", ">> LINE_BITS == 0)", "outer"),
        ("holder", "last_holders[slot].cpu = cpu;", "", "the lock stayed"),
        (
            "vain",
            "if (line_cpus[cpu].user != user)",
            "if (false)",
            "the other attempt is forgotten",
        ),
    ] {
        let header = header();
        assert!(header.contains(good), "{fault}: nothing to replace");
        let Some(output) = properties_that_fail(fault, &header.replacen(good, bad, 1)) else {
            return;
        };
        assert!(output.contains(property), "{fault}: not caught: {output:?}");
    }
}
