//! A new experiment file with comments, from a few answers: which host, which guests, which question.

use std::fmt::Write as _;

use holdfast_host::Linux;
use holdfast_workloads::Workload;

use crate::diagnostic::one_of;
use crate::linux::TODAY;

/// Transactions that take a database about as long as a kernel build.
const PGBENCH_TRANSACTIONS: u64 = 1_000_000;

/// A guest of a new experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewGuest {
    /// Name, or the first part of the names of several.
    pub name: String,
    /// What it runs.
    pub workload: String,
    /// vCPUs of each.
    pub vcpus: u32,
    /// How many there are.
    pub count: u32,
}

impl NewGuest {
    /// Reads `NAME:WORKLOAD:VCPUS` or `NAME:WORKLOAD:VCPUS:COUNT`, as in `builder:kernbench:8:3`.
    ///
    /// # Errors
    /// What was expected.
    pub fn parse(text: &str) -> Result<NewGuest, String> {
        let form =
            || "expected NAME:WORKLOAD:VCPUS or NAME:WORKLOAD:VCPUS:COUNT, as in builder:kernbench:8:3".to_owned();
        let parts: Vec<&str> = text.split(':').map(str::trim).collect();
        let (name, workload, vcpus, count) = match parts[..] {
            [name, workload, vcpus] => (name, workload, vcpus, "1"),
            [name, workload, vcpus, count] => (name, workload, vcpus, count),
            _ => return Err(form()),
        };
        let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number > 0).ok_or_else(form);
        let known: Vec<&str> = Workload::all().iter().map(Workload::name).collect();
        if !known.contains(&workload) {
            return Err(format!("expected {}", one_of(workload, known)));
        }
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        if !plain || !name.chars().any(|c| c.is_ascii_alphabetic()) {
            return Err("expected a name of letters, digits, - and _".to_owned());
        }
        Ok(NewGuest {
            name: name.to_owned(),
            workload: workload.to_owned(),
            vcpus: number(vcpus)?,
            count: number(count)?,
        })
    }
}

/// What a new experiment compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Question {
    /// The first guest on one socket, the others anywhere.
    Pin,
    /// The first guest with four times the weight of the others.
    #[default]
    Weight,
    /// All but the first guest limited to half of the machine together.
    Quota,
    /// The host's preemption model and its polling.
    Host,
}

impl Question {
    /// Every question.
    pub const ALL: [Question; 4] = [Question::Pin, Question::Weight, Question::Quota, Question::Host];

    /// Returns the name in options.
    pub fn name(self) -> &'static str {
        match self {
            Question::Pin => "pin",
            Question::Weight => "weight",
            Question::Quota => "quota",
            Question::Host => "host",
        }
    }

    /// Returns the question in words.
    pub fn about(self) -> &'static str {
        match self {
            Question::Pin => "does it help to pin the first guest to one socket?",
            Question::Weight => "does it help to give the first guest four times the weight?",
            Question::Quota => "does it help to limit the other guests to half of the machine?",
            Question::Host => "do preemption and halt polling of the host matter?",
        }
    }
}

/// The answers of which a new experiment is made.
#[derive(Clone, Debug)]
pub struct Answers {
    /// Name of the experiment.
    pub name: String,
    /// Version of the host's and the guests' Linux.
    pub kernel: Linux,
    /// File with `lscpu -p` or `virsh capabilities` of the host, or its sockets, cores and threads.
    pub host: Result<String, [u32; 3]>,
    /// The guests; the first one is what the question is about.
    pub guests: Vec<NewGuest>,
    /// What is compared.
    pub question: Question,
}

impl Answers {
    /// Returns the answers of a user who has none: a database next to two builders on a host of today.
    pub fn example(name: &str) -> Answers {
        let guest = |name: &str, workload: &str, count| NewGuest {
            name: name.to_owned(),
            workload: workload.to_owned(),
            vcpus: 8,
            count,
        };
        Answers {
            name: name.to_owned(),
            kernel: TODAY,
            host: Err([1, 8, 2]),
            guests: vec![guest("db", "pgbench", 1), guest("builder", "kernbench", 2)],
            question: Question::default(),
        }
    }

    /// Returns the versions that a user can name.
    pub fn kernels() -> impl Iterator<Item = &'static str> {
        Linux::ALL.into_iter().map(Linux::name)
    }
}

/// Returns the text of an experiment file.
pub fn text(answers: &Answers) -> String {
    let mut text = String::new();
    let kernel = answers.kernel.name();
    let vcpus: u32 = answers.guests.iter().map(|guest| guest.vcpus * guest.count).sum();
    let shown = |guest: &NewGuest| match guest.count {
        1 => guest.name.clone(),
        count => format!("{count} x {}", guest.name),
    };
    let all: Vec<String> = answers.guests.iter().map(shown).collect();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "# Made by `holdfast new`. `holdfast run THIS-FILE --out results` runs it, `holdfast explain` and `holdfast report`\n\
         # show where the time went, and `holdfast keys WORD` explains every key.\n\n\
         name = {:?}\n\
         title = {:?}\n\
         # What the users of each guest ask: transactions or messages per second with the times that they wait for them,\n\
         # or how long a build takes.\n\
         metric = \"own\"\n\
         # Runs of each variant. More of them prove smaller differences.\n\
         seeds = 5\n\
         # Share of the full-size work. A guest that ends much earlier than the others leaves them alone on the host: give\n\
         # it more (work = 10 is ten times as much) or let builders repeat (kernbench.repeat = true).\n\
         scale = 0.02\n\
         limit = \"20000 s\"\n\n\
         [machine]",
        answers.name,
        format!("{}: {}", all.join(", "), answers.question.about()),
    );
    let _ = match &answers.host {
        Ok(file) => writeln!(
            text,
            "# What `lscpu -p` or `virsh capabilities` printed on the host.\ntopology = {file:?}"
        ),
        Err([sockets, cores, threads]) => writeln!(
            text,
            "# Its pCPUs have the numbers that Linux gives them: see machine.numbering.\n\
             sockets = {sockets}\ncores = {cores}\nthreads = {threads}"
        ),
    };
    let _ = writeln!(
        text,
        "\n[host]\n# Scheduler, pause exits, halt polling, APIC virtualization of this version. Other keys refine it.\n\
         kernel = \"{kernel}\"\n\n\
         # All guests, of {vcpus} vCPUs together.\n\
         [guest]\n# Locks, ticks, mmap_lock, paravirtual features of this version.\nkernel = \"{kernel}\"\n\
         # As libvirt does: a group for each guest, and one below it for each vCPU.\n\
         cgroup = \"own-with-vcpu-groups\""
    );
    for guest in &answers.guests {
        let _ = write!(
            text,
            "\n[[vm]]\nname = {:?}\nworkload = {:?}\nvcpus = {}\n",
            guest.name, guest.workload, guest.vcpus
        );
        if guest.workload == "pgbench" {
            // Its full size lasts two seconds of virtual time, a kernel build two minutes.
            let _ = writeln!(text, "pgbench.transactions = {PGBENCH_TRANSACTIONS}");
        }
        if guest.count > 1 {
            let _ = writeln!(text, "count = {}", guest.count);
        }
    }
    let _ = write!(
        text,
        "\n# The first variant is what the others are compared with.\n[[variants]]\nname = \"as-it-is\"\n"
    );
    variants(answers, &mut text);
    text
}

/// Adds the variants of the question.
fn variants(answers: &Answers, text: &mut String) {
    let Some((first, others)) = answers.guests.split_first() else {
        return;
    };
    let mut variant = |name: &str, sets: &[String]| {
        let _ = write!(
            text,
            "\n[[variants]]\nname = {name:?}\nset = {{ {} }}\n",
            sets.join(", ")
        );
    };
    let name = &first.name;
    match answers.question {
        Question::Pin => {
            let cpus = match &answers.host {
                // With this numbering the first socket's first threads have the first numbers.
                Err([_, cores, threads]) if *threads > 1 => {
                    let second = answers.second_threads();
                    format!("0-{},{second}-{}", cores - 1, second + cores - 1)
                }
                Err([_, cores, _]) => format!("0-{}", cores - 1),
                Ok(_) => format!("0-{}", first.vcpus - 1),
            };
            variant("pinned", &[format!("\"vm.{name}.affinity\" = \"{cpus}\"")]);
        }
        Question::Weight => variant("heavier", &[format!("\"vm.{name}.cpu.weight\" = 400")]),
        Question::Quota => {
            let half = match &answers.host {
                Err([sockets, cores, threads]) => sockets * cores * threads / 2,
                Ok(_) => first.vcpus,
            };
            let guests: u32 = others.iter().map(|guest| guest.count).sum();
            let micros = (u64::from(half.max(1)) * 100_000 / u64::from(guests.max(1))).max(1_000);
            let sets = others
                .iter()
                .map(|guest| format!("\"vm.{}.cpu.max\" = \"{micros} 100000\"", guest.name));
            variant("limited", &sets.collect::<Vec<_>>());
        }
        Question::Host => {
            // Lazy preemption came with 6.13 and is the default of servers from 7.0 on; halt polling came with 4.0.
            let preempt = match answers.kernel {
                Linux::V7_3 => Some("full"),
                Linux::V6_18 => Some("lazy"),
                _ => None,
            };
            if let Some(preempt) = preempt {
                variant(preempt, &[format!("\"host.preempt\" = \"{preempt}\"")]);
            }
            let (name, polling) = match answers.kernel >= Linux::V4_12 {
                true => ("no-polling", "0 ns"),
                false => ("polling", "200 us"),
            };
            variant(name, &[format!("\"host.halt_poll\" = \"{polling}\"")]);
        }
    }
}

impl Answers {
    /// Returns the number of the first core's second thread.
    fn second_threads(&self) -> u32 {
        self.host
            .as_ref()
            .err()
            .map_or(0, |[sockets, cores, _]| sockets * cores)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::experiment::Experiment;
    use crate::options::Options;
    use crate::plan::Plan;

    fn plan(answers: &Answers) -> Plan {
        let text = text(answers);
        let experiment = Experiment::parse("new.toml", &text).unwrap_or_else(|problems| panic!("{problems}\n{text}"));
        Plan::new(experiment, &Options::default()).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
    }

    #[test]
    fn the_example_has_two_variants_of_three_guests() {
        let planned = plan(&Answers::example("mine"));
        assert_eq!(planned.cells.len(), 2);
        assert_eq!(planned.cells[0].config.vms.len(), 3);
        assert!(planned.remarks.is_empty(), "{:?}", planned.remarks);
    }

    #[test]
    fn guests_are_read_as_they_are_named() {
        let guest = NewGuest::parse("web:hackbench:4:2").expect("a guest");
        assert_eq!((guest.vcpus, guest.count), (4, 2));
        assert_eq!(NewGuest::parse("db:pgbench:8").map(|guest| guest.count), Ok(1));
        for (wrong, expected) in [
            ("db", "NAME:WORKLOAD:VCPUS"),
            ("db:pgbench:0", "NAME:WORKLOAD:VCPUS"),
            ("db:pgbensh:8", "did you mean \"pgbench\"?"),
            ("8:pgbench:8", "a name of letters"),
            ("a b:pgbench:8", "a name of letters"),
        ] {
            let refused = NewGuest::parse(wrong).expect_err(wrong);
            assert!(refused.contains(expected), "{wrong}: {refused}");
        }
    }

    proptest! {
        #[test]
        fn every_new_file_is_a_plan_with_variants_that_differ(
            question in 0..Question::ALL.len(),
            version in 0..Linux::ALL.len(),
            sockets in 1_u32..3, cores in 1_u32..9, threads in 1_u32..3,
            count in 1_u32..4,
        ) {
            let mut answers = Answers::example("mine");
            answers.question = Question::ALL[question];
            answers.kernel = Linux::ALL[version];
            answers.host = Err([sockets, cores, threads]);
            answers.guests[1].count = count;
            // 2.6.37 has no quotas.
            prop_assume!(answers.kernel > Linux::V2_6_37 || answers.question != Question::Quota);
            let planned = plan(&answers);
            let configs: Vec<String> = planned.cells.iter().map(|cell| format!("{:?}", cell.config)).collect();
            prop_assert!(configs.len() > 1 && configs[1..].iter().all(|config| *config != configs[0]));
        }
    }
}
