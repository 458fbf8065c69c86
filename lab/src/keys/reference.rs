//! The reference of all keys, generated from the table.

use std::fmt::Write as _;

use holdfast_host::{HostConfig, VmGroup};
use holdfast_workloads::Workload;

use super::{KEYS, Key, Target, costs};
use crate::diagnostic::Place;
use crate::draft::{Draft, DraftVm, new_task};
use crate::extensions::{Extensions, workloads_with};
use crate::groups::{DraftGroup, SHARES_DEFAULT};
use crate::linux::TODAY;
use crate::profile::MachineProfile;
use crate::shipped;
use crate::slot::Slot;

/// Description of a key: its kind and its default.
pub struct Described {
    /// The accepted values.
    pub kind: String,
    /// The default as a user writes it, or the rule that gives it.
    pub default: String,
}

impl Key {
    /// Describes the key from a new configuration.
    pub fn describe(&self, with: Extensions) -> Described {
        let describe = |slot: Option<Slot<'_>>| {
            slot.map(|slot| Described {
                kind: slot.kind(self.range),
                default: slot.show(),
            })
        };
        let described = match self.target {
            Target::Machine(target) => {
                let mut kinds = fresh_machines()
                    .into_iter()
                    .filter_map(|mut machine| target(&mut machine).map(|slot| slot.kind(self.range)));
                kinds.next().map(|kind| Described {
                    kind,
                    default: "the profile's".to_owned(),
                })
            }
            Target::Cost => Some(Described {
                kind: crate::amount::EXPECTED.to_owned(),
                default: "the profile's".to_owned(),
            }),
            Target::Destination => Some(Described {
                kind: "what `host.KEY` or `machine.KEY` takes".to_owned(),
                default: "the first host's".to_owned(),
            }),
            Target::Own => Some(Described {
                kind: "what the parameter takes".to_owned(),
                default: "the default of its type".to_owned(),
            }),
            Target::Host(target) => describe(target(&mut HostConfig::of(TODAY))),
            Target::Group(target) => describe(target(&mut DraftGroup::new(""))),
            Target::Vm(target) => fresh_vms(with).into_iter().find_map(|mut vm| describe(target(&mut vm))),
            Target::Task(target) => describe(target(&mut new_task(""))),
            Target::Run(target) => describe(target(&mut Draft {
                policies: with.policies,
                ..Draft::new(shipped::default_machine())
            })),
        };
        let mut described = described.expect("some configuration has every key");
        if self.path == "machine.profile" {
            described = Described {
                kind: "a shipped name or a TOML file".to_owned(),
                default: format!("{:?}", shipped::DEFAULT_MACHINE),
            };
        }
        if self.path == "machine.topology" {
            described = Described {
                kind: "a file".to_owned(),
                default: "the profile's".to_owned(),
            };
        }
        described
    }
}

/// Returns machines that together have every key: of Intel and of AMD.
fn fresh_machines() -> [MachineProfile; 2] {
    ["generic-x86", "epyc-rome"].map(|name| {
        let read = |_: &str| Err(std::io::ErrorKind::NotFound.into());
        shipped::machine(name, &Place::whole(name), &read).unwrap_or_else(|problems| panic!("{problems}"))
    })
}

/// Returns guests that together have every key.
fn fresh_vms(extensions: Extensions) -> Vec<DraftVm> {
    let with = |workload: Workload| {
        let mut vm = DraftVm {
            locks: extensions.locks,
            guest_policies: extensions.guest_policies,
            workloads: extensions.workloads,
            ..DraftVm::new("", TODAY)
        };
        vm.boot.workload = workload;
        vm
    };
    let mut grouped = DraftVm::new("", TODAY);
    grouped.host.group = VmGroup::OwnWithVcpuGroups { shares: SHARES_DEFAULT };
    let mut vms: Vec<DraftVm> = workloads_with(extensions.workloads).map(with).collect();
    vms.insert(1, grouped);
    vms
}

/// Returns the reference as a Markdown page.
pub fn markdown(with: Extensions) -> String {
    let mut page = String::from(INTRODUCTION);
    let _ = writeln!(
        page,
        "\n## Keys\n\n| key | takes | default | meaning |\n| --- | --- | --- | --- |"
    );
    for key in KEYS.iter() {
        let Described { kind, default } = key.describe(with);
        let unit = if key.unit.is_empty() {
            String::new()
        } else {
            format!(" ({})", key.unit)
        };
        let default = if default.starts_with("the ") {
            default
        } else {
            format!("`{default}`")
        };
        let _ = writeln!(
            page,
            "| `{}` | {kind}{unit} | {default} | {} |",
            key.path,
            key.doc(with)
        );
    }
    let _ = writeln!(
        page,
        "\n## Costs (`machine.costs.*`)\n\n| cost | meaning |\n| --- | --- |"
    );
    for (name, doc) in costs() {
        let _ = writeln!(page, "| `{name}` | {doc} |");
    }
    page
}

const INTRODUCTION: &str = "\
# Experiment files

`holdfast keys --format markdown` writes this page from the table that the parser itself uses. A test fails if the
page is out of date.

An experiment is one TOML file. `holdfast show NAME` prints a shipped one, ready to copy and edit. `holdfast run
FILE` runs it. An unknown key, a value of the wrong kind and a machine that cannot exist are errors. The message
names file, line and key, what was found and what was expected.

## Head

| key | takes | default | meaning |
| --- | --- | --- | --- |
| `name` | a string | required | Name of the experiment. |
| `title` | a string | required | What it shows, in one line. |
| `source` | a string | none | Where its setup and its published figures come from. |
| `setup` | a string | none | The setup in words. |
| `metric` | `elapsed`, `throughput` or `own` | required | What is compared. `elapsed` is in seconds. `own` is what each guest's users ask: the throughput of pgbench, netperf, amqp, ebizzy, aim7, dbench, contend and ipi in its usual unit, and the elapsed time of others. |
| `unit` | a string that ends in `/s` or `/min` | `1/s` | Unit of the throughput. |
| `better` | `lower` or `higher` | by the metric | Which direction is better. |
| `seeds` | a whole number | `5` | Runs of each cell. `--seeds` overrides it. |
| `scale` | a number above 0, up to 1 | `1` | Share of the full-size work. `--scale` overrides it. |

With `scale` below 1 each workload does that share of its work. Elapsed times are divided by the scale, so that they
compare with published figures. Throughput is a rate and is not divided. In a small run the beginning and the end
weigh more, so check what matters at a larger scale.

## Sections

Your own machine is a shipped profile with the values that you know better: `profile = \"generic-x86\"`, `sockets =
1`, `cores = 32`, `frequency = \"3.4 GHz\"`, `ple = true`, `costs.transfer_cross = \"120 ns\"`. Or write a whole
profile into a file next to the experiment. Costs in cycles follow the frequency.

`[machine]`, `[host]`, `[[group]]`, `[[vm]]` and `[[task]]` set the keys below. `[guest]` sets keys of all guests at
once. Each `[[group]]`, `[[vm]]` and `[[task]]` has a `name`. A `[[group]]` is a task group of the host. Other
groups, guests and tasks name it as their `parent`.

`[[vm]]` with `count = 3` and the name `web` stands for three identical guests `web-1` to `web-3`. A path with `web`
names all of them, one with `web-2` only that guest. Results have each guest, and their totals. Cases, variants,
sweeps and `--set` can set another number: `--sweep vm.web.count=1,2,4`.

`[[cases]]` and `[[variants]]` have a `name`, optionally a `title`, and `set`, a table of keys by path: `set = {
\"vm.*.lock\" = \"pv-ticket\" }`. A path names a group, guest or task by its name or by its number from 0, or all of
them by `*`. Each case runs with each variant, or with those that its `variants` lists. Each such cell runs with
each seed, and all cells use the same seeds. Later layers replace earlier ones: file, case, variant, sweep, `--set`.
Within a layer a path that names its guest takes precedence over a path with `*`. A workload's parameter with `*`
applies to the guests that run this workload.

`[[sweeps]]` has `key`, `values` and optionally `of = \"cases\"` (the default) or `\"variants\"`. Each case (or
variant) runs with each value, and is called `CASE key=value`.

`[[published]]` has `case`, `variant`, `vm`, `mean`, `unit`, `source`, and optionally `of`, `sd`, `runs` and
`calibrate`. `of` is `metric` (the default), `taking-locks`, the share of the guest's time on pCPUs in which it takes
spinlocks (free ones included, as a profiler in the guest sees it), or `cpu-time`, the pCPUs that it has on average,
of one. The last two are in `%`.
`calibrate` names the parameters of a workload that are calibrated on this row, separated by `; `. No other row is
used to calibrate. All other rows are compared with the predictions.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::key::field_doc;
    use crate::keys::names::Item;
    use crate::keys::slot;

    #[test]
    fn every_key_has_a_meaning_and_a_default() {
        for (name, doc) in costs() {
            assert!(!doc.is_empty(), "{name}");
        }
        for key in KEYS.iter() {
            let described = key.describe(Extensions::shipped());
            let documented = key.field.is_empty() || !field_doc(key.field).is_empty();
            assert!(documented, "{} has no doc comment, of {}", key.field, key.path);
            assert!(
                !key.doc(Extensions::shipped()).is_empty()
                    && !described.kind.is_empty()
                    && !described.default.is_empty(),
                "{}",
                key.path
            );
        }
    }

    #[test]
    fn keys_are_unique() {
        let mut paths: Vec<&str> = KEYS.iter().map(|key| key.path).collect();
        paths.sort_unstable();
        let all = paths.len();
        paths.dedup();
        assert_eq!(paths.len(), all);
    }

    #[test]
    fn every_workload_that_can_vary_has_keys_under_its_name() {
        let fixed = ["idle", "boot"];
        for workload in Workload::all()
            .iter()
            .filter(|workload| !fixed.contains(&workload.name()))
        {
            let prefix = format!("vm.*.{}.", workload.name());
            assert!(KEYS.iter().any(|key| key.path.starts_with(&prefix)), "{prefix}");
        }
    }

    /// Returns each key and its value, for each guest, task and cost.
    fn shown(draft: &mut Draft) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for item in items(draft) {
            if !KEYS[item.key].form_of.is_empty() {
                continue;
            }
            let path = format!("{} #{}", KEYS[item.key].path, item.instance);
            all.extend(slot(draft, &item).map(|slot| (path, slot.show())));
        }
        all
    }

    fn items(draft: &Draft) -> Vec<Item> {
        let count = |key: &Key| match key.target {
            Target::Group(_) => draft.groups.len(),
            Target::Vm(_) => draft.vms.len(),
            Target::Task(_) => draft.tasks.len(),
            Target::Cost => costs().count(),
            // Its parameters are those of the first host's keys. No shipped workload is a program's own.
            Target::Destination | Target::Own => 0,
            Target::Machine(_) | Target::Host(_) | Target::Run(_) => 1,
        };
        let keys = KEYS.iter().enumerate();
        keys.flat_map(|(key, entry)| (0..count(entry)).map(move |instance| Item::new(key, instance)))
            .collect()
    }

    // Finds an entry of the table that was copied and still sets the original's parameter.
    #[test]
    fn every_key_sets_itself_and_nothing_else() {
        let mut draft = Draft::new(shipped::default_machine());
        draft.groups = vec![DraftGroup::new("")];
        draft.vms = fresh_vms(Extensions::shipped());
        draft.tasks = vec![new_task("")];
        for machine in fresh_machines() {
            draft.machine = machine;
            check(&mut draft);
        }
    }

    fn check(draft: &mut Draft) {
        for item in items(draft) {
            let mut changed = draft.clone();
            if !slot(&mut changed, &item).is_some_and(Slot::alter) {
                continue;
            }
            let (before, after) = (shown(draft), shown(&mut changed));
            let differ: Vec<&String> = before
                .iter()
                .zip(&after)
                .filter(|(before, after)| before != after)
                .map(|(before, _)| &before.0)
                .collect();
            assert_eq!(differ, [&format!("{} #{}", KEYS[item.key].path, item.instance)]);
        }
    }

    #[test]
    fn the_reference_is_fresh() {
        let shipped = include_str!("../../../docs/reference.md");
        assert!(
            shipped == markdown(Extensions::shipped()),
            "docs/reference.md is stale: cargo run -- keys --format markdown > docs/reference.md"
        );
    }
}
