//! Domains as libvirt describes them: what `virsh dumpxml` prints, or a status file of `/run/libvirt/qemu`, which also
//! has process and threads.

use std::collections::BTreeMap;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::features::{self, Feature};
use crate::event::Tid;

/// A domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domain {
    /// Its name.
    pub name: String,
    /// Its process, in a status file.
    pub process: Option<Tid>,
    /// Threads of its vCPUs by number, in a status file.
    pub vcpus: BTreeMap<u32, Tid>,
    /// pCPUs to which vCPUs are pinned, by number.
    pub pins: BTreeMap<u32, String>,
    /// pCPUs to which the monitor's own threads are pinned.
    pub emulator_pin: Option<String>,
    /// Quota of each vCPU in microseconds per period; negative without one.
    pub vcpu_quota: Option<i64>,
    /// Paravirtual features that it names.
    pub features: Vec<Feature>,
    /// Arguments that it hands to QEMU, each ended by a NUL.
    arguments: String,
}

/// Most vCPUs that are read of a domain.
const VCPUS_MAX: usize = 8192;
/// Most bytes of QEMU's arguments that are read of a domain.
const ARGUMENTS_MAX: usize = 1 << 16;

fn attribute(element: &BytesStart<'_>, name: &str) -> Option<String> {
    let found = element.try_get_attribute(name).ok()??;
    String::from_utf8(found.value.into_owned()).ok()
}

fn number(element: &BytesStart<'_>, name: &str) -> Option<u32> {
    attribute(element, name)?.trim().parse().ok()
}

impl Domain {
    /// Reads a domain.
    ///
    /// # Errors
    /// What is wrong with `text`, in words.
    pub fn read(text: &str) -> Result<Domain, String> {
        let mut reader = Reader::from_str(text);
        let mut domain = Domain::default();
        let mut path: Vec<Vec<u8>> = Vec::new();
        let mut is_domain = false;
        loop {
            let event = reader
                .read_event()
                .map_err(|error| format!("at byte {}: {error}", reader.error_position()))?;
            match event {
                Event::Start(element) => {
                    domain.element(&element);
                    is_domain |= element.name().as_ref() == b"domain";
                    if path.len() >= 64 {
                        return Err("elements within elements, more than 64 deep".to_owned());
                    }
                    path.push(element.name().as_ref().to_vec());
                }
                Event::Empty(element) => domain.element(&element),
                Event::End(_) => {
                    path.pop();
                }
                Event::Text(text) => {
                    let within = |names: &[&str]| {
                        let names = names.iter().rev().map(|name| name.as_bytes());
                        path.len() >= 2 && path.iter().rev().zip(names).all(|(have, want)| have == want)
                    };
                    let Ok(words) = std::str::from_utf8(&text) else {
                        continue;
                    };
                    if within(&["domain", "name"]) {
                        domain.name = words.trim().chars().take(256).collect();
                    } else if within(&["cputune", "quota"]) {
                        domain.vcpu_quota = words.trim().parse().ok();
                    } else if within(&["os", "cmdline"]) {
                        features::of_kernel(&mut domain.features, words);
                    }
                }
                Event::Eof if is_domain => {
                    for feature in features::of_command(&domain.arguments) {
                        features::add(&mut domain.features, feature);
                    }
                    return Ok(domain);
                }
                Event::Eof => return Err("no <domain> in it".to_owned()),
                _ => {}
            }
        }
    }

    fn element(&mut self, element: &BytesStart<'_>) {
        match element.name().as_ref() {
            b"domstatus" => self.process = number(element, "pid"),
            b"vcpu" if self.vcpus.len() < VCPUS_MAX => {
                if let (Some(vcpu), Some(thread)) = (number(element, "id"), number(element, "pid")) {
                    self.vcpus.insert(vcpu, thread);
                }
            }
            b"vcpupin" if self.pins.len() < VCPUS_MAX => {
                if let (Some(vcpu), Some(cpus)) = (number(element, "vcpu"), attribute(element, "cpuset")) {
                    self.pins.insert(vcpu, cpus);
                }
            }
            b"emulatorpin" => self.emulator_pin = attribute(element, "cpuset"),
            b"qemu:arg" if self.arguments.len() < ARGUMENTS_MAX => {
                self.arguments += &attribute(element, "value").unwrap_or_default();
                self.arguments.push('\0');
            }
            // With the signature of KVM hidden, Linux uses none of its features.
            b"hidden" => self.feature(
                "kvm",
                attribute(element, "state").map(|state| state != "on"),
                "<hidden>",
            ),
            b"pvspinlock" => {
                let state = attribute(element, "state");
                self.feature("kvm-pv-unhalt", state.map(|state| state == "on"), "<pvspinlock>");
            }
            b"feature" => {
                let name = attribute(element, "name").filter(|name| name.starts_with("kvm"));
                if let (Some(name), Some(policy)) = (name, attribute(element, "policy")) {
                    let on = !["disable", "forbid"].contains(&policy.as_str());
                    self.feature(&name, Some(on), &format!("<feature policy='{policy}' name='{name}'>"));
                }
            }
            _ => {}
        }
    }

    /// Adds a feature that is said to be `on` by `from`, an element of the domain.
    fn feature(&mut self, name: &str, on: Option<bool>, from: &str) {
        if let Some(on) = on {
            let from = format!("libvirt: {from}");
            features::add(&mut self.features, Feature::known(name, on, &from));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_file_has_threads_and_pins() {
        let text = "<domstatus state='running' pid='4711'><vcpus><vcpu id='0' pid='4720'/><vcpu id='1' pid='4721'/>\
                    </vcpus><domain type='kvm' id='3'><name>web</name><vcpu placement='static'>2</vcpu><cputune>\
                    <vcpupin vcpu='0' cpuset='2-3'/><emulatorpin cpuset='2'/></cputune></domain></domstatus>";
        let domain = Domain::read(text).expect("a domain");
        assert_eq!((domain.name.as_str(), domain.process), ("web", Some(4711)));
        assert_eq!(domain.vcpus, BTreeMap::from([(0, 4720), (1, 4721)]));
        assert_eq!(domain.pins.get(&0).map(String::as_str), Some("2-3"));
        assert_eq!(domain.emulator_pin.as_deref(), Some("2"));
    }

    #[test]
    fn a_domain_says_which_features_are_off() {
        for (inside, expected) in [
            (
                "<features><pvspinlock state='off'/></features>",
                &[("kvm-pv-unhalt", false)][..],
            ),
            (
                "<features><kvm><hidden state='on'/></kvm></features>",
                &[("kvm", false)],
            ),
            (
                "<cpu><feature policy='disable' name='kvm_pv_unhalt'/></cpu>",
                &[("kvm-pv-unhalt", false)],
            ),
            ("<cpu><feature policy='disable' name='vmx'/></cpu>", &[]),
            ("<os><cmdline>quiet nopvspin</cmdline></os>", &[("nopvspin", true)]),
            (
                "<features><pvspinlock state='on'/></features><qemu:commandline><qemu:arg value='-cpu'/>\
                 <qemu:arg value='host,kvm-pv-unhalt=off'/></qemu:commandline>",
                &[("kvm-pv-unhalt", false)],
            ),
        ] {
            let domain = Domain::read(&format!("<domain><name>a</name>{inside}</domain>")).expect("a domain");
            let features = domain
                .features
                .iter()
                .map(|feature| (feature.name.as_str(), feature.on));
            assert_eq!(features.collect::<Vec<_>>(), expected, "{inside}");
        }
    }

    #[test]
    fn what_is_no_domain_is_refused() {
        for wrong in [
            "",
            "hello",
            "<network><name>a</name></network>",
            "<domain><name>a</domain>",
        ] {
            assert!(Domain::read(wrong).is_err(), "{wrong}");
        }
        let deep = "<domain>".repeat(100);
        assert!(Domain::read(&deep).is_err());
    }
}
