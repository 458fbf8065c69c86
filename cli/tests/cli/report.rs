//! `holdfast report`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::command::{holdfast_in, scratch, skipped};

/// Names that an attacker would choose. Each would leave a mark in the page if it were executed or loaded.
const HOSTILE: &str = r#"
name = "mine"
title = "</title><script>document.documentElement.dataset.owned = 1</script>"
metric = "elapsed"
# </pre><script>document.documentElement.dataset.owned = 2</script>

[[vm]]
name = "build"
workload = "kernbench"
vcpus = 2

[[cases]]
name = "a\" onload=\"document.documentElement.dataset.owned=3"

[[cases]]
name = "<img src=http://probe.invalid/a.png onerror='document.documentElement.dataset.owned=4'>"

[[variants]]
name = "ticket"

[[variants]]
name = "</style></svg><iframe src=http://probe.invalid/b></iframe>&amp;"
set = { "vm.*.lock" = "pv-ticket" }

[[published]]
case = "a\" onload=\"document.documentElement.dataset.owned=3"
variant = "ticket"
vm = "build"
mean = 60
sd = 70
unit = "s"
calibrate = "pace"
source = "<a href=javascript:alert(1)>"
"#;

/// Returns a folder with the results of [`HOSTILE`] and their report.
fn reported() -> (tempfile::TempDir, PathBuf) {
    let folder = scratch();
    fs::write(folder.path().join("mine.toml"), HOSTILE).expect("writable");
    let ran = holdfast_in(
        folder.path(),
        &["run", "mine.toml", "--scale", "0.002", "--seeds", "3", "--out", "."],
    );
    assert_eq!(ran.status, 0, "{}", ran.err);
    let ran = holdfast_in(folder.path(), &["report", "mine.results.json"]);
    assert_eq!((ran.status, ran.out.as_str()), (0, ""), "{}", ran.err);
    let page = folder.path().join("mine.results.html");
    (folder, page)
}

#[test]
fn nothing_of_the_users_becomes_markup() {
    let (_folder, page) = reported();
    let text = fs::read_to_string(page).expect("it is there");
    for planted in [
        "<script",
        "<img",
        "<iframe",
        "\" onload",
        "<a ",
        "javascript:alert(1)\"",
    ] {
        assert!(!text.contains(planted), "{planted} got through");
    }
    // Quotes in the user's texts are escaped, so markup with unescaped quotes would be the page's own.
    for loading in [" src=\"", " href=\"", "url(", "@import"] {
        assert!(!text.contains(loading), "the page loads something: {loading}");
    }
    assert!(
        text.contains("&lt;script&gt;document.documentElement.dataset.owned = 1"),
        "the title is shown"
    );
    assert!(text.contains("default-src 'none'"), "the page's own policy");
    assert_eq!(text.matches("<table").count(), text.matches("</table>").count());
    assert_eq!(text.matches("<svg").count(), text.matches("</svg>").count());
}

/// Returns the first browser that starts, unless this process may open too few files for one.
fn browser() -> Option<String> {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let files = files.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    if files.is_some_and(|files| files < 256) {
        return None;
    }
    let named = std::env::var("HOLDFAST_CHROMIUM").ok();
    let names = ["chromium", "chromium-browser", "google-chrome"].map(str::to_owned);
    named.into_iter().chain(names).find(|name| {
        let version = Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        version.is_ok_and(|status| status.success())
    })
}

/// Opens `page` with a profile of its own and no way to any network.
fn opened(browser: &str, page: &Path, more: &[&str]) -> (Output, String) {
    let profile = scratch();
    let log = profile.path().join("net.json");
    let output = Command::new(browser)
        // The browser makes a socket there, whose path must be short.
        .env("TMPDIR", "/tmp")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        .args([
            "--proxy-server=127.0.0.1:9",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--hide-scrollbars",
        ])
        .args(["--enable-logging=stderr", &format!("--log-net-log={}", log.display())])
        .arg(format!("--user-data-dir={}", profile.path().join("profile").display()))
        .args(more)
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("the browser starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let log = String::from_utf8_lossy(&fs::read(log).expect("a log of the network")).into_owned();
    (output, log)
}

/// Returns the URLs in a log of the network that are neither files nor the browser's own services.
fn requested(log: &str) -> Vec<&str> {
    let urls = log
        .split("\"url\":\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    let host = |url: &str| url.split('/').nth(2).unwrap_or_default().to_owned();
    let services = ["google.com", "googleapis.com", "gstatic.com"];
    urls.filter(|url| url.starts_with("http") || url.starts_with("ws"))
        .filter(|url| !services.iter().any(|service| host(url).ends_with(service)))
        .collect()
}

#[test]
fn a_browser_shows_it_and_loads_nothing() {
    let Some(browser) = browser() else {
        skipped("the report was not opened: no Chromium, or too few open files for it");
        return;
    };
    let (folder, page) = reported();
    let (output, log) = opened(&browser, &page, &["--dump-dom"]);
    let (dom, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(!errors.contains("CONSOLE"), "the console is empty: {errors}");
    assert_eq!(requested(&log), [""; 0], "no request leaves the page");
    assert!(!dom.contains("data-owned"), "something of the user's was executed");
    // Tables: results, every cause, convoys, two of counters, histories. Drawings: one for each row, and the legends.
    assert!(dom.matches("<table").count() >= 6, "{dom}");
    assert!(
        dom.matches("role=\"img\"").count() >= 8 && dom.matches("<circle").count() >= 12,
        "{dom}"
    );
    for (name, size, dark) in [
        ("wide", "1100,2400", false),
        ("phone", "500,2400", false),
        ("dark", "1100,2400", true),
    ] {
        let picture = folder.path().join(format!("{name}.png"));
        let mut more = vec![
            format!("--screenshot={}", picture.display()),
            format!("--window-size={size}"),
        ];
        if dark {
            more.push("--blink-settings=preferredColorScheme=0".to_owned());
        }
        opened(&browser, &page, &more.iter().map(String::as_str).collect::<Vec<_>>());
        let bytes = fs::read(&picture).expect("a screenshot");
        assert!(
            bytes.starts_with(b"\x89PNG") && bytes.len() > 20_000,
            "{name}: {} bytes",
            bytes.len()
        );
    }
}

#[test]
fn a_page_that_loads_and_complains_would_be_noticed() {
    let Some(browser) = browser() else {
        skipped("the check of the browser's check: no Chromium");
        return;
    };
    let folder = scratch();
    let page = folder.path().join("planted.html");
    let planted = "<!DOCTYPE html><img src=\"http://probe.invalid/a.png\"><script>console.error('planted')</script>";
    fs::write(&page, planted).expect("writable");
    let (output, log) = opened(&browser, &page, &["--dump-dom"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("CONSOLE"));
    assert!(requested(&log).contains(&"http://probe.invalid/a.png"));
}

#[test]
fn bad_results_are_told() {
    let folder = scratch();
    let complaint = |name: &str, text: Option<&str>| {
        if let Some(text) = text {
            fs::write(folder.path().join(name), text).expect("writable");
        }
        let ran = holdfast_in(folder.path(), &["report", name]);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{}", ran.err);
        assert!(
            !folder.path().join(name).with_extension("html").exists(),
            "no page is left behind"
        );
        ran.err
    };
    let missing = complaint("none.json", None);
    assert!(missing.contains("none.json: cannot read it"), "{missing}");
    let half = complaint("half.json", Some("{\"schema\": \"holdfast.results/2\","));
    assert!(half.contains("half.json:1: found the end of the file"), "{half}");
    let foreign = complaint("foreign.json", Some("{}"));
    assert!(
        foreign.contains("foreign.json: found no schema, expected a results file"),
        "{foreign}"
    );
    let lacking = complaint("lacking.json", Some("{\"schema\": \"holdfast.results/2\"}"));
    assert!(lacking.contains("missing field"), "{lacking}");
}

#[test]
fn drawings_stand_alone_and_nothing_of_the_users_becomes_markup() {
    let (folder, _page) = reported();
    let ran = holdfast_in(folder.path(), &["report", "mine.results.json", "--svg", "drawn"]);
    assert_eq!((ran.status, ran.out.as_str()), (0, ""), "{}", ran.err);
    for name in ["mine-elapsed.svg", "mine-lost-time.svg"] {
        let text = fs::read_to_string(folder.path().join("drawn").join(name)).expect("it is there");
        assert!(text.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{name}");
        for planted in [
            "<script",
            "<img",
            "<iframe",
            "\" onload",
            "<a ",
            "<link",
            "@import",
            "url(",
        ] {
            assert!(!text.contains(planted), "{name}: {planted}");
        }
        for tag in ["svg", "g", "text", "title", "style", "rect"] {
            let opened = text.matches(&format!("<{tag} ")).count() + text.matches(&format!("<{tag}>")).count();
            assert_eq!(opened, text.matches(&format!("</{tag}>")).count(), "{name}: {tag}");
        }
        assert!(
            text.contains("prefers-color-scheme: dark"),
            "{name} follows the reader's setting"
        );
    }
    let none = holdfast_in(
        folder.path(),
        &["report", "mine.results.json", "--svg", "drawn", "--case", "zzz"],
    );
    assert_eq!(none.status, 2, "{}", none.err);
    assert!(
        none.err
            .contains("--case: found \"zzz\", expected the beginning of one of"),
        "{}",
        none.err
    );
}

#[cfg(not(feature = "parquet"))]
#[test]
fn without_its_feature_parquet_names_the_command_that_builds_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = holdfast_in(
        folder.path(),
        &["run", "--seeds", "1", "--scale", "0.002", "--case", "1x", "--out", "."],
    );
    assert_eq!(made.status, 0, "{}", made.err);
    let ran = holdfast_in(
        folder.path(),
        &["report", "kernbench-overcommit.results.json", "--parquet", "tables"],
    );
    assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{}", ran.err);
    let command =
        "cargo run --release --features parquet -- report kernbench-overcommit.results.json --parquet tables\n";
    assert!(ran.err.ends_with(command), "{}", ran.err);
    assert!(!folder.path().join("tables").exists());
}
