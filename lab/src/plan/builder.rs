//! Builds the configuration of each cell of a plan.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::path::{Path, PathBuf};

use holdfast_host::Linux;
use holdfast_sim::Config;
use holdfast_workloads::{RecordedHost, Workload};

use super::{ReadFile, counts, hardware};
use crate::diagnostic::{Findings, KeyFindings, Place};
use crate::document::Value;
use crate::draft::{Draft, DraftVm, new_task};
use crate::experiment::{Experiment, Layer, Metric};
use crate::extensions::Extensions;
use crate::groups::DraftGroup;
use crate::keys::{Effective, Parameters, Setting, TO, resolved};
use crate::profile::MachineProfile;
use crate::replay;
use crate::shipped;
use crate::topology::{self, HostTopology};

/// Builds configurations. Each machine profile is read once.
pub(super) struct Builder<'e> {
    experiment: &'e Experiment,
    read: ReadFile<'e>,
    extensions: Extensions,
    /// Texts of the machine profiles that were read.
    pub(super) files: BTreeMap<PathBuf, String>,
    profiles: BTreeMap<PathBuf, Option<MachineProfile>>,
    /// The settings of `*` by their addresses, and whether some guest, group or task has taken each.
    pub(super) taken: BTreeMap<*const Setting, bool>,
    findings: &'e mut Findings,
}

impl<'e> Builder<'e> {
    pub(super) fn new(
        experiment: &'e Experiment,
        read: ReadFile<'e>,
        extensions: Extensions,
        findings: &'e mut Findings,
    ) -> Builder<'e> {
        Builder {
            experiment,
            read,
            extensions,
            files: BTreeMap::new(),
            profiles: BTreeMap::new(),
            taken: BTreeMap::new(),
            findings,
        }
    }

    /// Returns the configuration of a cell, and the value of every key; `None` if there are mistakes.
    pub(super) fn cell(
        &mut self,
        case: &Layer,
        variant: &Layer,
        set: &[Setting],
        scale: f64,
    ) -> Option<(Config, Parameters)> {
        let experiment = self.experiment;
        let names = &experiment.names;
        let mut effective = Effective::default();
        let layers: [&[Setting]; 4] = [&experiment.base, &case.settings, &variant.settings, set];
        for layer in layers {
            effective.layer(layer, names, self.findings);
        }
        let host_kernel = effective.host_kernel();
        let mut draft = Draft {
            groups: names.groups.iter().map(|name| DraftGroup::new(name)).collect(),
            vms: names.vms.iter().map(|name| self.vm(name, host_kernel)).collect(),
            tasks: names.tasks.iter().map(|name| new_task(name)).collect(),
            policies: self.extensions.policies,
            ..Draft::new(self.machine(&effective)?)
        };
        if let Some(other) = effective.destination_profile() {
            draft.migration.machine = Some(self.profile(Some(other))?);
        }
        let before = self.findings.count();
        effective.apply(&mut draft, self.findings);
        for (setting, taken) in effective.taken(&mut draft) {
            *self.taken.entry(std::ptr::from_ref(setting)).or_default() |= taken;
        }
        counts::keep(&mut draft.vms, &layers, names);
        if self.findings.count() > before {
            // What several keys together get wrong may follow from a key that could not be set.
            return None;
        }
        hardware::check(&draft, &|path| effective.set_at(path, names), self.findings);
        if let Some(there) = draft.there() {
            let at = |path: &str| {
                let rest = path.strip_prefix("host.").or(path.strip_prefix("machine."))?;
                let there = effective.set_at(&format!("{TO}{rest}"), names);
                // What the first host's file asks for, its CPU has, and the other CPU may lack.
                there.or(effective.set_at(path, names))
            };
            hardware::check(&there, &at, self.findings);
        }
        for vm in &mut draft.vms {
            let key = format!("vm.{}.recorded.file", vm.name);
            let at = effective.place(&key, names, &Place::whole(&experiment.file));
            self.recorded(vm, scale, &key, &at)?;
        }
        let file = Place::whole(&experiment.file);
        let place = |path: &str| effective.place(path, names, &file);
        let mut findings = KeyFindings::new(&place, self.findings);
        if experiment.metric == Metric::Throughput {
            let uncounted = |vm: &&DraftVm| vm.is_measured() && !vm.boot.workload.counts_operations();
            for vm in draft.vms.iter().filter(uncounted) {
                let key = format!("vm.{}.workload", vm.name);
                let expected = "pgbench or aim7, or metric = \"own\" or \"elapsed\"";
                findings.add(&key, "a workload without operations to count", expected);
            }
        }
        let parameters = resolved(&mut draft);
        let mut config = draft.build(scale, &mut findings)?;
        replay::forgive(&mut config);
        Some((config, parameters))
    }

    /// Returns whether `config` is the set-up that the experiment's file states. The time limit is no part of it.
    pub(super) fn is_as_stated(&mut self, case: &Layer, variant: &Layer, scale: f64, config: &Config) -> bool {
        let mut findings = Findings::default();
        let mut builder = Builder {
            profiles: std::mem::take(&mut self.profiles),
            ..Builder::new(self.experiment, self.read, self.extensions, &mut findings)
        };
        let stated = builder.cell(case, variant, &[], scale);
        self.profiles = builder.profiles;
        stated.is_some_and(|(stated, _)| {
            let stated = Config {
                limit_ns: config.limit_ns,
                ..stated
            };
            format!("{stated:?}") == format!("{config:?}")
        })
    }

    fn vm(&self, name: &str, host_kernel: Linux) -> DraftVm {
        DraftVm {
            locks: self.extensions.locks,
            guest_policies: self.extensions.guest_policies,
            workloads: self.extensions.workloads,
            ..DraftVm::new(name, host_kernel)
        }
    }

    /// Returns the machine of the profile, with the topology of the file if one is named.
    fn machine(&mut self, effective: &Effective<'_>) -> Option<MachineProfile> {
        let mut machine = self.profile(effective.profile())?;
        let Some(setting) = effective.topology() else {
            return Some(machine);
        };
        let read = match &setting.node.value {
            Value::Text(name) => self
                .text(&setting.node.place, name)
                .and_then(|text| topology::read(text).map_err(|found| format!("{name:?}, with {found}"))),
            other => Err(other.to_string()),
        };
        match read {
            Ok(HostTopology { topology, numbering }) => {
                machine.topology = topology;
                machine.numbering = numbering;
                Some(machine)
            }
            Err(found) => {
                let place = &setting.node.place;
                self.findings.add(place, &setting.path, found, topology::EXPECTED);
                None
            }
        }
    }

    /// Reads the threads of a guest that repeats recorded ones. Returns `None` if there is a mistake.
    fn recorded(&mut self, vm: &mut DraftVm, scale: f64, key: &str, place: &Place) -> Option<()> {
        let vcpus = vm.vcpus;
        let poll = &mut vm.host.halt_poll_cap_ns;
        let Workload::Recorded(recorded) = &mut vm.boot.workload else {
            return Some(());
        };
        if recorded.guest == RecordedHost::HOST {
            // The host polls for vCPUs, not for threads of its own.
            *poll = Some(0);
        }
        let name = recorded.file.clone();
        let read = if name.is_empty() {
            Err("no file".to_owned())
        } else if scale != 1.0 {
            Err(format!("{name:?} at scale {scale}, where a recording has one length"))
        } else {
            let text = self.text(place, &name);
            text.and_then(|text| replay::fill(recorded, text, vcpus).map_err(|found| format!("{name:?}, with {found}")))
        };
        read.map_err(|found| self.findings.add(place, key, found, replay::EXPECTED))
            .ok()
    }

    /// Returns the text of the file `name`, which is set at `place`. Each file is read once.
    fn text(&mut self, place: &Place, name: &str) -> Result<&str, String> {
        let path = self.path(place, name);
        match self.files.entry(path) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let text = (self.read)(new.key()).map_err(|error| format!("{name:?} ({error})"))?;
                Ok(new.insert(text))
            }
        }
    }

    /// Returns the path of the file `name`, which is set at `place`. A path in an option is the user's, relative to the
    /// working folder.
    fn path(&self, place: &Place, name: &str) -> PathBuf {
        let above = Path::new(&self.experiment.file).parent();
        let folder = above.filter(|_| place.line > 0).unwrap_or(Path::new(""));
        folder.join(name)
    }

    fn profile(&mut self, setting: Option<&Setting>) -> Option<MachineProfile> {
        let Some(setting) = setting else {
            return Some(shipped::default_machine());
        };
        let Value::Text(name) = &setting.node.value else {
            let found = setting.node.value.to_string();
            self.findings
                .add(&setting.node.place, &setting.path, found, "a machine profile's name");
            return None;
        };
        let path = self.path(&setting.node.place, name);
        if let Some(known) = self.profiles.get(&path) {
            return known.clone();
        }
        let text = RefCell::new(None);
        let read = |_: &str| -> io::Result<String> { Ok(text.borrow_mut().insert((self.read)(&path)?).clone()) };
        let profile = shipped::machine(name, &setting.node.place, &read);
        self.files.extend(text.into_inner().map(|text| (path.clone(), text)));
        let profile = match profile {
            Ok(profile) => Some(profile),
            Err(problems) => {
                self.findings.extend(problems);
                None
            }
        };
        self.profiles.insert(path, profile.clone());
        profile
    }
}
