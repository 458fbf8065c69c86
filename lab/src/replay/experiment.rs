//! Guests that repeat the threads of a recorded host, and the experiment that has them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use holdfast_recordings::account::{Account, VmAccount};
use holdfast_recordings::hosts::Level;
use holdfast_workloads::{Recorded, RecordedHost, recorded_fault};

use crate::digest::digest;
use crate::linux;

/// Name of the guest whose vCPUs are the threads of the recorded host itself.
pub const HOST_THREADS: &str = "host-threads";

/// What the key takes.
pub const EXPECTED: &str = "a file that `holdfast import --experiment` has written, and at scale 1";

/// Fills `recorded`, a guest of `vcpus` vCPUs, with the threads of its guest in the file with this `text`.
///
/// # Errors
/// Returns what was found instead of such a file.
pub fn fill(recorded: &mut Recorded, text: &str, vcpus: u32) -> Result<(), String> {
    let host: RecordedHost = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if host.schema != RecordedHost::SCHEMA {
        return Err(format!(
            "schema {:?} in place of {:?}",
            host.schema,
            RecordedHost::SCHEMA
        ));
    }
    let Some(threads) = host.guests.get(&recorded.guest) else {
        let names: Vec<&str> = host.guests.keys().map(String::as_str).collect();
        return Err(format!("no guest {:?}, but {}", recorded.guest, names.join(", ")));
    };
    if threads.len() > vcpus as usize {
        return Err(format!(
            "{} threads of {:?} for {vcpus} vCPUs",
            threads.len(),
            recorded.guest
        ));
    }
    if let Some(fault) = recorded_fault(threads) {
        return Err(fault);
    }
    recorded.threads = threads.as_slice().into();
    recorded.digest = digest(&[text]);
    Ok(())
}

/// Returns the text of an experiment that repeats the guests of `account`, whose threads are in `file` under `names`.
pub fn experiment(name: &str, account: &Account, names: &[String], host: &RecordedHost, file: &str) -> String {
    let mut text = String::new();
    let ready: Vec<String> = (names.iter().zip(&account.vms))
        .filter_map(|(name, vm)| Some(format!("#   {name}: {:.2} %", figure(vm, "ready_percent")?)))
        .collect();
    let seconds = host.span_ns.div_ceil(1_000_000_000).max(1);
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "# Made by `holdfast import`. Each vCPU repeats what was recorded: how long it computed, and for whom it waited.\n\
         # The host is simulated. Ask about pinning, placement, weights, quotas, polling, slices, preemption and versions\n\
         # of its scheduler. Locks and kernels of the guests cannot be asked about: their spinning is recorded time.\n\
         #\n\
         # `holdfast import` compares a replay with the recording. CPU ready was recorded as:\n{}\n\n\
         name = {name:?}\ntitle = {:?}\nmetric = \"elapsed\"\nseeds = 3\nscale = 1\nlimit = \"{} s\"\n\n[machine]\n{}\n[host]\n",
        ready.join("\n"),
        format!("{name}: {} recorded guests, {seconds} s", account.vms.len()),
        seconds * 20,
        machine(account),
    );
    let kernel = account
        .kernel
        .as_deref()
        .and_then(linux::nearest)
        .unwrap_or(linux::TODAY);
    let _ = writeln!(text, "kernel = \"{}\"", kernel.name());
    // A wakeup is tied to another vCPU only if that one had left its guest for it.
    let _ = writeln!(text, "apicv = false");
    if let Some(ns) = account.halt_poll_ns {
        let _ = writeln!(text, "halt_poll = \"{ns} ns\"");
    }
    let model = account.preemption.as_deref();
    if let Some(model) = model.filter(|model| ["none", "voluntary", "full", "lazy"].contains(model)) {
        let _ = writeln!(text, "preempt = {model:?}");
    }
    for (name, vm) in names.iter().zip(&account.vms) {
        guest(&mut text, name, name, vm.vcpus.len(), file);
        let allowed: Option<Vec<String>> = (vm.vcpus.iter())
            .map(|vcpu| Some(format!("{:?}", vcpu.allowed.as_ref()?)))
            .collect();
        if let Some(allowed) = allowed {
            let _ = writeln!(text, "affinity = [{}]", allowed.join(", "));
        }
        group(&mut text, account, vm);
    }
    if let Some(threads) = host.guests.get(RecordedHost::HOST) {
        let _ = write!(text, "\n# The host's own threads with the most time.");
        guest(&mut text, HOST_THREADS, RecordedHost::HOST, threads.len(), file);
        if account.others.len() == threads.len() && account.others.iter().any(|other| other.allowed.is_some()) {
            let all = listed(&account.cpus.iter().map(|cpu| cpu.cpu).collect::<Vec<u32>>());
            let allowed = (account.others.iter()).map(|other| format!("{:?}", other.allowed.as_ref().unwrap_or(&all)));
            let _ = writeln!(text, "affinity = [{}]", allowed.collect::<Vec<String>>().join(", "));
        }
    }
    let _ = write!(text, "\n[[variants]]\nname = \"as-recorded\"\n");
    if account.halt_poll_ns != Some(0) {
        let _ = write!(
            text,
            "\n[[variants]]\nname = \"no-polling\"\nset = {{ \"host.halt_poll\" = \"0 ns\" }}\n"
        );
    }
    text
}

/// Returns `numbers` as Linux lists them: `0-3,8`.
pub fn listed(numbers: &[u32]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs = sorted.chunk_by(|a, b| a + 1 == *b);
    let runs = runs.map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    runs.collect::<Vec<String>>().join(",")
}

fn figure(vm: &VmAccount, name: &str) -> Option<f64> {
    vm.figures.iter().find(|figure| figure.name == name)?.value
}

/// Adds the control group of `vm`: the first that no other VM is in.
fn group(text: &mut String, account: &Account, vm: &VmAccount) {
    let levels = vm.groups.as_ref().map_or(&[][..], |groups| &groups.levels);
    let names = |levels: &[Level]| levels.iter().map(|level| level.name.clone()).collect::<Vec<String>>();
    let own = (0..levels.len()).find(|last| {
        let path = names(&levels[..=*last]);
        let others = account.vms.iter().filter(|other| other.process != vm.process);
        let mut others = others.filter_map(|other| other.groups.as_ref());
        !others.any(|other| names(&other.levels).starts_with(&path))
    });
    // A quota has a group, whatever the other files say.
    if own.is_none() && vm.quota.is_none() {
        return;
    }
    let of_vcpus = vm.groups.as_ref().is_some_and(|groups| groups.of_vcpus);
    let kind = if of_vcpus { "own-with-vcpu-groups" } else { "own" };
    let _ = writeln!(text, "cgroup = {kind:?}");
    if let Some(weight) = own.and_then(|own| levels[own].weight) {
        let _ = writeln!(text, "cpu.weight = {}", weight.clamp(1, 10_000));
    }
    if let Some(quota) = vm.quota {
        let _ = writeln!(text, "cpu.max = \"{:.0} 100000\"", quota * 100_000.0);
    }
}

/// Adds a guest.
fn guest(text: &mut String, name: &str, guest: &str, vcpus: usize, file: &str) {
    let _ = write!(
        text,
        "\n[[vm]]\nname = {name:?}\nworkload = \"recorded\"\nvcpus = {vcpus}\nrecorded.file = {file:?}\nrecorded.guest = {guest:?}\n"
    );
}

/// Returns the keys of the recorded machine: its pCPUs, and where they are if files say it.
fn machine(account: &Account) -> String {
    let places = &account.places;
    let packages: BTreeSet<_> = places.iter().filter_map(|place| place.package).collect();
    let cores: BTreeSet<_> = places
        .iter()
        .filter_map(|place| Some((place.package?, place.core?)))
        .collect();
    let (sockets, whole) = (packages.len(), cores.len());
    let even = sockets > 0 && whole.is_multiple_of(sockets) && whole > 0 && places.len().is_multiple_of(whole);
    if even {
        let (cores, threads) = (whole / sockets, places.len() / whole);
        return format!("sockets = {sockets}\ncores = {cores}\nthreads = {threads}\n");
    }
    format!(
        "# No file beside the recording says where its pCPUs are.\nsockets = 1\ncores = {}\nthreads = 1\n",
        account.cpus.len().max(1)
    )
}
