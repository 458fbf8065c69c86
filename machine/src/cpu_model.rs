//! CPU models of servers, and which of them has which support for virtual machines.

use crate::avic::AvicHardware;
use crate::pause::PauseHardware;

/// AMD's APIC virtualization of a CPU model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvicFeatures {
    /// CPU family, by which hypervisors recognize errata. For example 0x17 for Zen 1 and 2.
    pub family: u32,
    /// Features and errata that change the behavior of the hardware.
    pub hardware: AvicHardware,
}

/// Intel's APIC virtualization of a CPU model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApicvFeatures {
    /// Whether hardware can send IPIs (IPI virtualization).
    pub ipiv: bool,
}

/// A CPU model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuModel {
    /// Name in profiles and keys.
    pub name: &'static str,
    /// Year of the first servers, or 0 for a model that is not listed.
    pub year: u16,
    /// Detection of pause loops.
    pub pauses: Option<PauseHardware>,
    /// Whether its TLB tells address spaces apart (process-context identifiers).
    pub pcid: bool,
    /// AVIC, or `None` if the model lacks it.
    pub avic: Option<AvicFeatures>,
    /// APICv: register virtualization, virtual-interrupt delivery and posted interrupts. `None` if the model lacks it.
    pub apicv: Option<ApicvFeatures>,
}

impl CpuModel {
    /// A model about which only its profile says something. It has no APIC virtualization.
    pub const UNLISTED: &CpuModel = &intel("unlisted", 0, None);

    /// All models, each vendor's in order of years. The facts are from manuals and kernels, from memory.
    pub const ALL: &[CpuModel] = &[
        intel("nehalem-ep", 2009, None),
        intel("nehalem-ex", 2010, None),
        intel("westmere-ex", 2011, None),
        intel("sandy-bridge-ep", 2012, None),
        intel("ivy-bridge-ep", 2013, Some(false)),
        intel("haswell-ep", 2014, Some(false)),
        intel("broadwell-ep", 2016, Some(false)),
        intel("skylake-sp", 2017, Some(false)),
        intel("cascade-lake", 2019, Some(false)),
        intel("ice-lake-sp", 2021, Some(false)),
        intel("sapphire-rapids", 2023, Some(true)),
        intel("emerald-rapids", 2023, Some(true)),
        intel("granite-rapids", 2024, Some(true)),
        intel("clearwater-forest", 2026, Some(true)),
        amd("bulldozer", 2011, None),
        amd("piledriver", 2012, None),
        amd("carrizo", 2015, Some((0x15, AVIC))),
        amd("zen1", 2017, Some((0x17, AVIC_1235))),
        amd("zen2", 2019, Some((0x17, AVIC_1235))),
        amd("zen3", 2021, Some((0x19, AVIC))),
        amd("zen4", 2022, Some((0x19, X2AVIC))),
        amd("zen5", 2024, Some((0x1a, IDLE_HLT))),
        amd("zen6", 2026, Some((0x1a, EXTENDED))),
    ];

    /// Returns whether the CPU can log the pages that guests write (page-modification logging: Broadwell and later,
    /// from memory).
    pub fn has_page_log(&self) -> bool {
        self.pauses == Some(PauseHardware::Ple) && self.year >= 2016
    }

    /// Returns the model called `name`.
    pub fn by_name(name: &str) -> Option<&'static CpuModel> {
        let all = CpuModel::ALL.iter().chain([CpuModel::UNLISTED]);
        all.into_iter().find(|model| model.name == name)
    }
}

/// An Intel CPU. `apicv`: whether it has IPI virtualization too. Only Nehalem-EP has no pause-loop exiting, and only
/// Nehalem has no process-context identifiers.
const fn intel(name: &'static str, year: u16, apicv: Option<bool>) -> CpuModel {
    CpuModel {
        name,
        year,
        pauses: match year {
            2009 => None,
            _ => Some(PauseHardware::Ple),
        },
        pcid: year > 2010,
        avic: None,
        apicv: match apicv {
            Some(ipiv) => Some(ApicvFeatures { ipiv }),
            None => None,
        },
    }
}

/// The first AVIC.
const AVIC: AvicHardware = AvicHardware {
    x2avic: false,
    erratum_1235: false,
    extended_tables: false,
    idle_hlt: false,
};
const AVIC_1235: AvicHardware = AvicHardware {
    erratum_1235: true,
    ..AVIC
};
const X2AVIC: AvicHardware = AvicHardware { x2avic: true, ..AVIC };
const IDLE_HLT: AvicHardware = AvicHardware {
    idle_hlt: true,
    ..X2AVIC
};
const EXTENDED: AvicHardware = AvicHardware {
    extended_tables: true,
    ..IDLE_HLT
};

/// An AMD CPU. `avic`: its family and its AVIC. Process-context identifiers came with Zen 3.
const fn amd(name: &'static str, year: u16, avic: Option<(u32, AvicHardware)>) -> CpuModel {
    CpuModel {
        name,
        year,
        pauses: Some(PauseHardware::Filter),
        pcid: year > 2020,
        avic: match avic {
            Some((family, hardware)) => Some(AvicFeatures { family, hardware }),
            None => None,
        },
        apicv: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_no_model_has_both_vendors_features() {
        for (index, model) in CpuModel::ALL.iter().enumerate() {
            assert_eq!(CpuModel::by_name(model.name), Some(model));
            assert!(CpuModel::ALL[..index].iter().all(|other| other.name != model.name));
            assert!(model.avic.is_none() || model.apicv.is_none(), "{}", model.name);
            assert!((2009..=2026).contains(&model.year), "{}", model.name);
        }
    }

    #[test]
    fn the_specification_has_a_row_for_each_model() {
        let page = include_str!("../../docs/spec/interrupts.md");
        for model in CpuModel::ALL {
            let yes = |has: bool| if has { "yes" } else { "-" };
            let pauses = match model.pauses {
                Some(PauseHardware::Ple) => "PLE",
                Some(PauseHardware::Filter) => "filter",
                None => "-",
            };
            let avic = model.avic.map(|avic| avic.hardware);
            let row = format!(
                "| `{}` | {} | {pauses} | {} | {} | {} | {} | {} | {} | {} |",
                model.name,
                model.year,
                yes(model.pcid),
                yes(model.apicv.is_some()),
                yes(model.apicv.is_some_and(|apicv| apicv.ipiv)),
                match avic {
                    Some(avic) if avic.erratum_1235 => "erratum 1235",
                    Some(_) => "yes",
                    None => "-",
                },
                yes(avic.is_some_and(|avic| avic.x2avic)),
                yes(avic.is_some_and(|avic| avic.idle_hlt)),
                yes(avic.is_some_and(|avic| avic.extended_tables)),
            );
            assert!(page.contains(&row), "docs/spec/interrupts.md lacks {row}");
        }
    }
}
