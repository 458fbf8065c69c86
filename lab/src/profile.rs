//! Machine profiles: read from TOML, every cost with its unit and its source.
//!
//! - **Complete.** A profile states every cost; nothing has a silent default.
//! - **Sourced.** Every cost states the source of its value, and whether it is uncertain: an estimate, a figure from
//!   memory, or a figure of another CPU model.

mod idle;

use holdfast_host::PauseControls;
use holdfast_machine::{ApicvModel, AvicModel, Costs, CpuModel, Numbering, PauseHardware, Picos, Profile, Topology};

pub use idle::IdleProfile;

use crate::amount::{Amount, Unit};
use crate::diagnostic::{Findings, Place, Problems, one_of};
use crate::document::{self, Reader, Table};
use crate::shipped::files::{MACHINES, find};

/// A cost as stated in a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// The time that it takes.
    pub amount: Amount,
    /// Source of the value.
    pub source: String,
    /// Whether the value is uncertain: an estimate, a figure from memory, or a figure of another CPU model.
    pub uncertain: bool,
}

/// A machine profile as in its file: cycles are still cycles, so that another frequency can be set.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineProfile {
    /// Name, as in `machines/NAME.toml`.
    pub name: String,
    /// Description in one line.
    pub title: String,
    /// CPU model, which decides about APIC virtualization.
    pub cpu: &'static CpuModel,
    /// Sockets, cores, threads.
    pub topology: Topology,
    /// How the host's Linux numbers the pCPUs, in affinities and in traces.
    pub numbering: Numbering,
    /// Clock of the cores and of the time-stamp counter. Costs in cycles follow it.
    pub frequency_hz: u64,
    /// Detection of pause loops: Intel's pause-loop exiting or AMD's pause filter.
    pub pauses: PauseDetection,
    /// Costs of AMD's interrupt controller for guests, on a CPU model that has it.
    pub avic: Option<StatedCosts>,
    /// Costs of Intel's APIC virtualization, on a CPU model that has it.
    pub apicv: Option<StatedCosts>,
    /// All costs.
    pub costs: StatedCosts,
    /// Idle states of a pCPU, in order of depth. Empty if `idle_exit` is the whole way out of every idle state.
    pub idle_states: Vec<IdleProfile>,
}

/// Detection of pause loops, by vendor.
#[derive(Clone, Debug, PartialEq)]
pub enum PauseDetection {
    /// Intel: pause-loop exiting.
    Ple {
        /// Whether pause-loop exiting is on. Intel only (kvm_intel `ple_gap` other than 0).
        enabled: bool,
        /// `gap` of [`PauseControls::Ple`].
        gap: Amount,
        /// `window` of [`PauseControls::Ple`].
        window: Amount,
    },
    /// AMD: the pause filter.
    Filter {
        /// Whether the pause filter is on. AMD only.
        enabled: bool,
        /// `count` of [`PauseControls::Filter`].
        count: u32,
        /// `threshold` of [`PauseControls::Filter`].
        threshold: Amount,
    },
}

impl PauseDetection {
    /// Returns KVM's defaults for an Intel CPU.
    pub fn intel(enabled: bool) -> PauseDetection {
        PauseDetection::Ple {
            enabled,
            gap: Amount::from_cycles(128),
            window: Amount::from_cycles(4096),
        }
    }

    /// Returns KVM's defaults for an AMD CPU.
    pub fn amd(enabled: bool) -> PauseDetection {
        PauseDetection::Filter {
            enabled,
            count: 3000,
            threshold: Amount::from_cycles(128),
        }
    }

    /// Returns whether detection is on.
    pub fn enabled(&self) -> bool {
        match self {
            PauseDetection::Ple { enabled, .. } | PauseDetection::Filter { enabled, .. } => *enabled,
        }
    }

    /// Returns the settings in the units of the hardware, or `None` if a time does not fit its field.
    pub fn controls(&self, frequency_hz: u64) -> Option<PauseControls> {
        let cycles = |amount: &Amount| u32::try_from(amount.cycles(frequency_hz)?).ok();
        Some(match self {
            PauseDetection::Ple { gap, window, .. } => PauseControls::Ple {
                gap: cycles(gap)?,
                window: cycles(window)?,
            },
            PauseDetection::Filter { count, threshold, .. } => PauseControls::Filter {
                count: *count,
                threshold: cycles(threshold)?,
            },
        })
    }

    fn hardware(&self) -> Option<PauseHardware> {
        self.enabled().then_some(match self {
            PauseDetection::Ple { .. } => PauseHardware::Ple,
            PauseDetection::Filter { .. } => PauseHardware::Filter,
        })
    }
}

/// Costs by name, as stated in a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct StatedCosts(Vec<(&'static str, Cost)>);

impl StatedCosts {
    /// Returns the cost called `name`.
    pub fn by_name(&mut self, name: &str) -> Option<&mut Cost> {
        self.0
            .iter_mut()
            .find(|(known, _)| *known == name)
            .map(|(_, cost)| cost)
    }

    fn picos(&self, name: &str, frequency_hz: u64) -> Option<Picos> {
        let (_, cost) = self.0.iter().find(|(known, _)| *known == name)?;
        cost.amount.picos(frequency_hz)
    }

    /// Reads the costs called `names`.
    fn read(reader: &mut Reader<'_, '_>, names: &[&'static str]) -> Option<StatedCosts> {
        // All costs are read before a missing one ends it, so that all problems are reported together.
        let costs: Vec<_> = names
            .iter()
            .map(|name| Some((*name, read_cost(reader, name)?)))
            .collect();
        costs.into_iter().collect::<Option<_>>().map(StatedCosts)
    }
}

/// Size limit of a machine in pCPUs.
pub const PCPUS_MAX: u32 = 1024;

impl MachineProfile {
    /// Reads a profile. `file`: its name in messages.
    ///
    /// # Errors
    /// All mistakes in the text: unknown keys, missing costs, wrong units.
    pub fn parse(file: &str, text: &str) -> Result<MachineProfile, Problems> {
        let document = document::parse(file, text)?;
        let mut findings = Findings::default();
        let profile = read_profile(&document, &Place::new(&file.into(), 1), &mut findings);
        findings
            .conclude(profile)
            .map(|profile| profile.expect("a profile without problems has every part"))
    }

    /// Returns the machine, with cycles converted to time, or `None` if a cost is beyond 2^64 ps at this frequency.
    pub fn build(&self) -> Option<Profile> {
        Some(Profile {
            name: self.name.clone(),
            topology: self.topology,
            numbering: self.numbering,
            frequency_hz: self.frequency_hz,
            costs: Costs::from_costs(|name| self.costs.picos(name, self.frequency_hz))?,
            idle_states: idle::build(&self.idle_states, self.frequency_hz)?,
            pcid: self.cpu.pcid,
            pause_hardware: self.pauses.hardware(),
            avic: match (&self.avic, self.cpu.avic) {
                (Some(costs), Some(features)) => Some(AvicModel::from_costs(
                    |name| costs.picos(name, self.frequency_hz),
                    features.hardware,
                    features.family,
                )?),
                _ => None,
            },
            apicv: match (&self.apicv, self.cpu.apicv) {
                (Some(costs), Some(features)) => Some(ApicvModel::from_costs(
                    |name| costs.picos(name, self.frequency_hz),
                    features.ipiv,
                )?),
                _ => None,
            },
        })
    }
}

fn read_profile(document: &Table, start: &Place, findings: &mut Findings) -> Option<MachineProfile> {
    let mut reader = Reader::new(document, start.clone(), findings);
    let name = reader.shown_name("name");
    let title = reader.text("title");
    let cpu = read_cpu(&mut reader);
    let base = read_base(&mut reader)?;
    let topology = section(&mut reader, "topology", start, |reader| {
        let mut count = |key| match reader.whole(key, 1, PCPUS_MAX) {
            None if !reader.has(key) => {
                reader.missing(key, "a whole number");
                None
            }
            count => count,
        };
        let (sockets, cores, threads) = (count("sockets"), count("cores"), count("threads"));
        Some(Topology {
            sockets: sockets?,
            cores: cores?,
            threads: threads?,
        })
    });
    let frequency_hz = section(&mut reader, "frequency", start, read_frequency);
    let pauses = read_pauses(&mut reader, start);
    let avic = read_optional(&mut reader, "avic", AvicModel::COSTS);
    let apicv = read_optional(&mut reader, "apicv", ApicvModel::COSTS);
    let costs = match &base {
        Some(base) if !reader.has("costs") => Some(base.costs.clone()),
        _ => section(&mut reader, "costs", start, |reader| {
            StatedCosts::read(reader, Costs::COSTS)
        }),
    };
    let idle_states = idle::read(&mut reader);
    reader.finish();
    let (avic, apicv, idle_states) = match base {
        Some(base) => (
            avic.map(|avic| avic.or(base.avic)),
            apicv.map(|apicv| apicv.or(base.apicv)),
            idle_states.map(|states| if states.is_empty() { base.idle_states } else { states }),
        ),
        None => (avic, apicv, idle_states),
    };
    Some(MachineProfile {
        name: name?.to_owned(),
        title: title?.to_owned(),
        cpu: cpu?,
        topology: topology?,
        numbering: Numbering::default(),
        frequency_hz: frequency_hz?,
        pauses: pauses?,
        avic: avic?,
        apicv: apicv?,
        costs: costs?,
        idle_states: idle_states?,
    })
}

/// Reads `base`: the shipped profile with the tables that this one leaves out, of costs, APIC virtualization and idle
/// states. Returns `None` after a mistake in it.
fn read_base(reader: &mut Reader<'_, '_>) -> Option<Option<MachineProfile>> {
    let Some(name) = reader.optional_text("base") else {
        return Some(None);
    };
    let Some(shipped) = find(MACHINES, name) else {
        let place = reader.place_of("base");
        let expected = one_of(name, MACHINES.iter().map(|shipped| shipped.name));
        reader.findings().add(&place, "base", format!("{name:?}"), expected);
        return None;
    };
    let base = MachineProfile::parse(shipped.file, shipped.text);
    Some(Some(base.expect("a test parses every shipped profile")))
}

/// Reads `cpu`. A profile may leave it out. Returns `None` after a mistake in it.
fn read_cpu(reader: &mut Reader<'_, '_>) -> Option<&'static CpuModel> {
    if !reader.has("cpu") {
        return Some(CpuModel::UNLISTED);
    }
    let name = reader.text("cpu")?;
    let models: Vec<(&str, &CpuModel)> = CpuModel::ALL.iter().map(|model| (model.name, model)).collect();
    reader.choose("cpu", name, &models)
}

/// Reads `[ple]` of an Intel CPU or `[pause_filter]` of an AMD CPU, each value with its source.
fn read_pauses(reader: &mut Reader<'_, '_>, start: &Place) -> Option<PauseDetection> {
    let (intel, amd) = (reader.has("ple"), reader.has("pause_filter"));
    if intel && amd {
        let expected = "[ple] for an Intel CPU or [pause_filter] for an AMD CPU, not both";
        reader.wrong("pause_filter", "both", expected);
    }
    if !amd {
        return section(reader, "ple", start, |reader| {
            let (gap, window) = (read_cost(reader, "gap"), read_cost(reader, "window"));
            let enabled = reader.flag("enabled");
            Some(PauseDetection::Ple {
                enabled,
                gap: gap?.amount,
                window: window?.amount,
            })
        });
    }
    section(reader, "pause_filter", start, |reader| {
        let count = match reader.whole("count", 1, u32::from(u16::MAX)) {
            None if !reader.has("count") => {
                reader.missing("count", "a whole number of PAUSEs");
                None
            }
            count => count,
        };
        reader.text("count_source");
        let threshold = read_cost(reader, "threshold");
        let enabled = reader.flag("enabled");
        Some(PauseDetection::Filter {
            enabled,
            count: count?,
            threshold: threshold?.amount,
        })
    })
}

/// Reads the required table at `key` with `read`.
fn section<T>(
    reader: &mut Reader<'_, '_>,
    key: &'static str,
    start: &Place,
    read: impl FnOnce(&mut Reader<'_, '_>) -> Option<T>,
) -> Option<T> {
    let Some((table, place)) = reader.optional_table(key) else {
        reader
            .findings()
            .add(start, key, "nothing", format!("the table [{key}]"));
        return None;
    };
    let mut inner = Reader::new(table, place.clone(), reader.findings());
    let value = read(&mut inner);
    inner.finish();
    value
}

fn read_frequency(reader: &mut Reader<'_, '_>) -> Option<u64> {
    let place = reader.place_of("value");
    let (value, unit) = (reader.number("value"), reader.text("unit"));
    reader.text("source")?;
    let (value, unit) = (value?, unit?);
    let hertz = match unit {
        "MHz" => value * 1e6,
        "GHz" => value * 1e9,
        other => {
            reader
                .findings()
                .add(&place, "frequency.unit", format!("{other:?}"), "\"MHz\" or \"GHz\"");
            return None;
        }
    };
    if !(1e6..=1e11).contains(&hertz) {
        reader
            .findings()
            .add(&place, "frequency", format!("{value} {unit}"), "1 MHz to 100 GHz");
        return None;
    }
    Some(hertz.round() as u64)
}

/// Reads the table of the costs `names` at `key`, if there is one. Returns `None` after a mistake in it.
fn read_optional(
    reader: &mut Reader<'_, '_>,
    key: &'static str,
    names: &[&'static str],
) -> Option<Option<StatedCosts>> {
    let Some((table, place)) = reader.optional_table(key) else {
        return Some(None);
    };
    let mut inner = Reader::new(table, place.clone(), reader.findings());
    let found = StatedCosts::read(&mut inner, names);
    inner.finish();
    found.map(Some)
}

fn read_cost(reader: &mut Reader<'_, '_>, key: &'static str) -> Option<Cost> {
    let Some((table, place)) = reader.optional_table(key) else {
        if reader.optional(key).is_none() {
            reader.missing(key, "a cost: { value, unit, source }");
        }
        return None;
    };
    let mut inner = Reader::new(table, place.clone(), reader.findings());
    let (value, unit, source) = (inner.number("value"), inner.text("unit"), inner.text("source"));
    let uncertain = inner.flag("uncertain");
    inner.finish();
    let path = &table.path;
    let unit_name = unit?;
    let Some(unit) = Unit::by_name(unit_name).filter(|unit| *unit != Unit::Seconds) else {
        reader.findings().add(
            place,
            format!("{path}.unit"),
            format!("{unit_name:?}"),
            "one of ps, ns, us, ms, cycles",
        );
        return None;
    };
    let Some(amount) = Amount::new(value?, unit).filter(|amount| is_cost(*amount)) else {
        let found = format!("{} {unit_name}", value?);
        reader.findings().add(place, format!("{path}.value"), found, "0 to 1 s");
        return None;
    };
    Some(Cost {
        amount,
        source: source?.to_owned(),
        uncertain,
    })
}

/// Returns whether `amount` can be a cost. More than a second is almost certainly a wrong unit.
pub(crate) fn is_cost(amount: Amount) -> bool {
    amount
        .picos(1_000_000_000)
        .is_some_and(|picos| picos <= Picos(1_000_000_000_000))
}
