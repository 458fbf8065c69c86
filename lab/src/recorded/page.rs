//! The page about a recording: one file of HTML, as those about results are.

use holdfast_recordings::account::{Account, Basis};
use holdfast_recordings::picture::Picture;
use maud::{DOCTYPE, Markup, html};

use super::{drawing, tables};
use crate::report::{foldable, head, prose};

/// Most rows of each VM in a table of names.
const ROWS: usize = 8;

/// Returns the page. `name`: the recording's. `picture`: the time around the longest wait.
pub fn page(name: &str, account: &Account, picture: Option<&Picture>, version: &str) -> String {
    let seconds = account.length_ns as f64 / 1e9;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(name, version))
            body {
                header {
                    p class="kicker" { "holdfast · " (name) }
                    h1 { "Where the time of the virtual machines went" }
                    p class="facts" {
                        span { b { (format!("{seconds:.2}")) } " s recorded" }
                        span { b { (account.cpus.len()) } " pCPUs" }
                        span { b { (account.vms.iter().map(|vm| vm.vcpus.len()).sum::<usize>()) } " vCPUs" }
                        @if let Some(kernel) = &account.kernel { span { "kernel " b { (kernel) } } }
                        @if let Some(model) = &account.preemption { span { "preemption " b { (model) } } }
                        span { b { (account.seen.events) } " events" }
                    }
                }
                main {
                    section { p class="verdict" { b { (prose(&account.sentence)) } } }
                    (warnings(account))
                    @if !account.vms.is_empty() { (body(account, picture)) }
                    section { h2 { "Physical CPUs" } (foldable("Share of the recorded time", &tables::host(account))) }
                }
            }
        }
    };
    page.into_string()
}

fn warnings(account: &Account) -> Markup {
    let warnings = tables::warnings(account);
    html! {
        @if !warnings.is_empty() {
            section class="warning" aria-label="What is missing" {
                h2 { "What is missing" }
                @for warning in &warnings { p { (prose(warning)) "." } }
            }
        }
    }
}

fn body(account: &Account, picture: Option<&Picture>) -> Markup {
    html! {
        section {
            h2 { "CPU ready" }
            (foldable("CPU ready of each VM, and what it was behind", &tables::summary(account)))
            p class="note" { (tables::NOTE) " Shares behind something are of the ready time." }
        }
        section { h2 { "Where the vCPUs' time went" } (drawing::bars(account)) }
        @if let (Some(picture), Some(worst)) = (picture, &account.worst) {
            section {
                h2 { "Around the longest wait" }
                p class="note" {
                    (worst.vm) @if let Some(vcpu) = worst.vcpu { ", vCPU " (vcpu) } " waited for "
                    (format!("{:.3} ms, {:.3} s", worst.ns as f64 / 1e6, worst.from_ns as f64 / 1e9))
                    " after the begin. Shown: " (format!("{:.3} s", (picture.to - picture.from) as f64 / 1e9))
                    ". Each column shows what took most of its time."
                }
                (drawing::timeline(picture))
            }
        }
        section { h2 { "Behind what" } (foldable("What each VM waited behind", &tables::behind(account, ROWS))) }
        section { h2 { "Each vCPU" } (foldable("vCPUs", &tables::vcpus(account))) }
        section { h2 { "Exits" } (foldable("Exits by reason", &tables::exits(account, ROWS))) }
        section { h2 { "Wakeups" } (foldable("What woke vCPUs", &tables::wakers(account, ROWS))) }
        section {
            h2 { "All figures" }
            (foldable("Figures of each VM", &tables::figures(account)))
            (reasons(account))
        }
    }
}

/// Renders why figures are not known.
fn reasons(account: &Account) -> Markup {
    let mut reasons: Vec<(&str, &str)> = Vec::new();
    for figure in account.vms.iter().flat_map(|vm| &vm.figures) {
        let row = (figure.name, figure.why);
        if figure.basis != Basis::Known && !reasons.contains(&row) {
            reasons.push(row);
        }
    }
    html! {
        @if !reasons.is_empty() {
            details {
                summary { "Why some figures are inferred or unknown" }
                dl { @for (name, why) in &reasons { dt { code { (name) } } dd { (why) } } }
            }
        }
    }
}
