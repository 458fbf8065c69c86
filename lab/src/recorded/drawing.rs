//! Drawings of an account: stacked bars of each VM, and a timeline of a window.

use holdfast_recordings::account::{Account, Figure};
use holdfast_recordings::picture::{Picture, VcpuPicture};
use holdfast_recordings::timeline::State;
use maud::{Markup, html};

/// A part of a bar: class in the style sheet, name in the legend.
type Kind = (&'static str, &'static str);

/// Parts of bars, in their order.
const PARTS: [Kind; 11] = [
    ("c-useful", "in the guest"),
    ("c-critical", "running, guest or host not recorded"),
    ("c-rest", "exits and host code"),
    ("c-running", "polling while halted"),
    ("c-holder", "ready, behind a sibling"),
    ("c-waiter", "ready, behind other VMs"),
    ("c-ipi", "ready, behind its own monitor and vhost"),
    ("c-throttled", "ready, behind the kernel and other threads"),
    ("c-ready", "ready, behind what is not known"),
    ("c-stopped", "not known"),
    ("c-idle", "halted or asleep"),
];

fn value(figures: &[Figure], name: &str) -> f64 {
    Account::figure(figures, name)
        .and_then(|figure| figure.value)
        .unwrap_or(0.0)
}

/// Returns the shares of [`PARTS`], which sum to 1 if anything was recorded.
fn shares(figures: &[Figure]) -> [f64; PARTS.len()] {
    let of = |name: &str| value(figures, name) / 100.0;
    let ready = of("ready_percent");
    let behind = |names: &[&str]| names.iter().map(|name| ready * of(name)).sum::<f64>();
    let siblings = behind(&["behind_siblings_percent"]);
    let vms = behind(&["behind_other_vms_percent"]);
    let own = behind(&["behind_own_threads_percent", "behind_own_vhost_percent"]);
    let host = behind(&["behind_kernel_percent", "behind_other_threads_percent"]);
    let named = [siblings, vms, own, host];
    let mut shares = [
        of("guest_percent"),
        of("running_percent"),
        of("host_percent"),
        of("polling_percent"),
        siblings,
        vms,
        own,
        host,
        (ready - named.iter().sum::<f64>()).max(0.0),
        of("unknown_percent"),
        0.0,
    ];
    // What is unknown as a figure is part of the rest.
    shares[10] = (1.0 - shares.iter().sum::<f64>()).max(0.0);
    shares
}

fn legend(kinds: impl Iterator<Item = Kind>) -> Markup {
    html! {
        ul class="legend" {
            @for (class, name) in kinds {
                li { svg width="18" height="14" aria-hidden="true" { rect class=(class) width="18" height="14" {} } (name) }
            }
        }
    }
}

/// Most bars.
const BARS_MAX: usize = 64;

/// Renders a bar for each VM.
pub fn bars(account: &Account) -> Markup {
    let rows: Vec<(String, [f64; PARTS.len()])> = account
        .vms
        .iter()
        .take(BARS_MAX)
        .map(|vm| (vm.name.clone(), shares(&vm.figures)))
        .collect();
    let seen = |index: usize| rows.iter().any(|(_, shares)| shares[index] > 0.0005);
    html! {
        (legend((0..PARTS.len()).filter(|index| seen(*index)).map(|index| PARTS[index])))
        div class="chart" {
            @for (name, shares) in &rows {
                div class="row first" {
                    div class="label" { b { (name) } }
                    svg class="plot bar" width="100%" height="26" role="img" aria-label=(in_words(name, shares)) {
                        title { (in_words(name, shares)) }
                        @for (index, share) in shares.iter().enumerate() {
                            @let start: f64 = shares[..index].iter().sum();
                            @if *share > 0.0 {
                                rect class=(PARTS[index].0) x=(format!("{:.4}%", start * 100.0)) width=(format!("{:.4}%", share * 100.0)) height="26" {}
                            }
                        }
                    }
                }
            }
        }
    }
}

fn in_words(name: &str, shares: &[f64]) -> String {
    let parts = shares.iter().enumerate().filter(|(_, share)| **share >= 0.0005);
    let words: Vec<String> = parts
        .map(|(index, share)| format!("{} {:.1} %", PARTS[index].1, share * 100.0))
        .collect();
    format!("{name}: {}", words.join(", "))
}

/// Columns of a timeline.
const COLUMNS: usize = 800;
/// Most vCPUs of a timeline.
const ROWS_MAX: usize = 64;

/// Kinds of states in a timeline; a vCPU that is halted or asleep is not drawn.
fn kind(state: State) -> Option<Kind> {
    Some(match state {
        State::Guest => ("c-useful", "in the guest"),
        State::Running => ("c-critical", "running, guest or host not recorded"),
        State::Host => ("c-rest", "exits and host code"),
        State::Polling => ("c-running", "polling while halted"),
        State::Ready => ("c-holder", "READY, without a pCPU"),
        State::Unknown => ("c-stopped", "not known"),
        State::Halted | State::Asleep => return None,
    })
}

/// Returns what took most of each column, as runs of columns: first, last and state.
fn columns(picture: &Picture, vcpu: &VcpuPicture) -> Vec<(usize, usize, State)> {
    let length = (picture.to - picture.from).max(1) as f64;
    let place = |at: u64| (at.saturating_sub(picture.from)) as f64 / length * COLUMNS as f64;
    let mut most = vec![[0.0_f64; State::ALL.len()]; COLUMNS];
    for span in &vcpu.spans {
        let (from, to) = (place(span.from), place(span.to));
        for (column, sums) in most.iter_mut().enumerate().take(to.ceil() as usize).skip(from as usize) {
            let part = to.min(column as f64 + 1.0) - from.max(column as f64);
            sums[span.what.0 as usize] += part.max(0.0);
        }
    }
    let mut runs: Vec<(usize, usize, State)> = Vec::new();
    for (column, sums) in most.iter().enumerate() {
        let largest = State::ALL
            .into_iter()
            .max_by(|a, b| sums[*a as usize].total_cmp(&sums[*b as usize]));
        let Some(state) = largest.filter(|state| sums[*state as usize] > 0.0) else {
            continue;
        };
        match runs.last_mut() {
            Some((_, last, before)) if *before == state && *last == column => *last = column + 1,
            _ => runs.push((column, column + 1, state)),
        }
    }
    runs
}

/// Renders what each vCPU did in `picture`.
pub fn timeline(picture: &Picture) -> Markup {
    let share = |column: usize| format!("{:.3}%", column as f64 / COLUMNS as f64 * 100.0);
    let shown = picture.vcpus.iter().take(ROWS_MAX);
    let rows: Vec<_> = shown.map(|vcpu| (vcpu, columns(picture, vcpu))).collect();
    let kinds = State::ALL.into_iter().filter(|state| {
        let mut runs = rows.iter().flat_map(|(_, runs)| runs);
        runs.any(|(_, _, drawn)| drawn == state)
    });
    html! {
        (legend(kinds.filter_map(kind)))
        div class="chart" {
            @for (index, (vcpu, runs)) in rows.iter().enumerate() {
                @let first = index == 0 || rows[index - 1].0.vm != vcpu.vm;
                div class={ "row" @if first { " first" } } {
                    div class="label" { @if first { b { (vcpu.vm) } " " } span class="vm" { (vcpu.name) } }
                    svg class="plot" width="100%" height="14" role="img" aria-label={ (vcpu.vm) ", " (vcpu.name) } {
                        @for (from, to, state) in runs {
                            @if let Some((class, name)) = kind(*state) {
                                rect class=(class) x=(share(*from)) width=(share(to - from)) height="14" { title { (name) } }
                            }
                        }
                    }
                }
            }
        }
        @if picture.vcpus.len() > ROWS_MAX { p class="note" { "The first " (ROWS_MAX) " of " (picture.vcpus.len()) " vCPUs." } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_sum_to_the_whole() {
        let figures = [
            Figure::known("guest_percent", 40.0),
            Figure::known("host_percent", 10.0),
            Figure::known("ready_percent", 30.0),
            Figure::known("behind_siblings_percent", 50.0),
            Figure::inferred("behind_kernel_percent", 20.0, "so"),
            Figure::unknown("polling_percent", "so"),
            Figure::known("unknown_percent", 5.0),
        ];
        let shares = shares(&figures);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!((shares[4] - 0.15).abs() < 1e-9 && (shares[8] - 0.09).abs() < 1e-9);
        assert!((shares[10] - 0.15).abs() < 1e-9);
    }
}
