//! Parameters of a workload and a guest policy that a program adds: values reach them with their types, and bad ones
//! are refused.

use holdfast_guest::{Limits, Machine, Os, Program, Start};
use holdfast_lab::experiment::Experiment;
use holdfast_lab::extensions::{Extensions, Load};
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_locks::CpuId;
use holdfast_sim::{CallOff, run};
use holdfast_workloads::{Cpus, GuestPolicy, Parameter, Place, Placed, TaskId};

/// A workload of one task, which ends after `items` times `work_ns`, and says what it has.
#[derive(Clone, Debug)]
struct Mine {
    items: u64,
    work_ns: u64,
    share: f64,
    lanes: u32,
    eager: bool,
}

impl Default for Mine {
    fn default() -> Mine {
        Mine {
            items: 100,
            work_ns: 1_000,
            share: 0.5,
            lanes: 1,
            eager: false,
        }
    }
}

impl Load for Mine {
    fn scale_work(&mut self, share: f64) {
        self.items = (self.items as f64 * share) as u64;
    }

    fn parameters(&mut self) -> Vec<Parameter<'_>> {
        vec![
            Parameter::new("items", "items in all", Place::U64(&mut self.items)).within(1.0, 1e6),
            Parameter::new("work", "what an item takes", Place::Nanos(&mut self.work_ns)),
            Parameter::new("share", "of something", Place::F64(&mut self.share)).within(0.0, 1.0),
            Parameter::new("lanes", "of something else", Place::U32(&mut self.lanes)).within(1.0, 8.0),
            Parameter::new("eager", "whether it is", Place::Flag(&mut self.eager)),
        ]
    }

    fn program<M: Machine>(&self, _: u32) -> Box<dyn Program<M>> {
        Box::new(self.clone())
    }
}

impl<M: Machine> Program<M> for Mine {
    fn limits(&self) -> Limits {
        Limits {
            tasks: 1,
            ..Limits::default()
        }
    }

    fn run(&self, os: &Os<M>, _: Start) {
        os.begin();
        os.user(self.items * self.work_ns);
        let permille = (self.share * 1000.0) as u64;
        let eager = u64::from(self.eager);
        let has = [
            ("items", self.items),
            ("share", permille),
            ("lanes", self.lanes.into()),
            ("eager", eager),
        ];
        has.into_iter().for_each(|(name, value)| os.report(name, value));
        os.done(None);
    }
}

/// A policy that has all tasks on `cpu`.
#[derive(Debug, Default)]
struct OneCpu {
    cpu: u32,
    lanes: u32,
}

impl GuestPolicy for OneCpu {
    fn about(&self) -> &'static str {
        "one CPU"
    }

    fn parameters(&mut self) -> Vec<Parameter<'_>> {
        vec![
            Parameter::new("cpu", "where tasks are", Place::U32(&mut self.cpu)).within(0.0, 7.0),
            Parameter::new(
                "lanes",
                "a name that the workload has, too",
                Place::U32(&mut self.lanes),
            ),
        ]
    }

    fn place(&self, _: &Cpus<'_>, _: Placed, _: CpuId) -> CpuId {
        CpuId(self.cpu)
    }

    fn tick(&self, _: &Cpus<'_>, _: Option<TaskId>) -> Option<CpuId> {
        Some(CpuId(self.cpu))
    }
}

const FILE: &str = r#"
name = "mine"
title = "a workload with parameters"
metric = "elapsed"
seeds = 1
scale = 1.0
[[vm]]
name = "a"
vcpus = 1
workload = "mine"
own.items = 200
[[vm]]
name = "b"
vcpus = 1
workload = "mine"
[[vm]]
name = "other"
vcpus = 1
workload = "hog"
"#;

fn plan(set: &[&str]) -> Result<Plan, String> {
    let options = Options {
        set: set.iter().map(|&setting| setting.to_owned()).collect(),
        extensions: Extensions::shipped()
            .workload::<Mine>("mine")
            .guest_policy::<OneCpu>("one-cpu"),
        ..Options::default()
    };
    let experiment = Experiment::parse("mine.toml", FILE).map_err(|problems| problems.to_string())?;
    Plan::new(experiment, &options).map_err(|problems| problems.to_string())
}

/// Returns what guest `vm` has, and how long it took.
fn has(set: &[&str], vm: usize) -> [u64; 5] {
    let plan = plan(set).unwrap_or_else(|problems| panic!("{problems}"));
    let outcome = run(&plan.cells[0].config, &CallOff::new()).unwrap_or_else(|failure| panic!("{failure}"));
    let vm = &outcome.vms[vm];
    let counter = |name: &str| vm.counters[name];
    let elapsed = vm.elapsed_ns.expect("it is measured");
    [
        counter("items"),
        counter("share"),
        counter("lanes"),
        counter("eager"),
        elapsed,
    ]
}

#[test]
fn values_reach_the_guest_that_they_name() {
    assert_eq!(has(&[], 0)[..4], [200, 500, 1, 0]);
    assert_eq!(has(&[], 1)[..4], [100, 500, 1, 0], "the default of its type");
    let set = [
        "vm.*.own.share=0.25",
        "vm.b.own.lanes=8",
        "vm.b.own.eager=true",
        "vm.*.own.items=50",
    ];
    assert_eq!(has(&set, 0)[..4], [50, 250, 1, 0]);
    assert_eq!(has(&set, 1)[..4], [50, 250, 8, 1]);
    let [short, long] = ["vm.b.own.work=1 us", "vm.b.own.work=1 ms"].map(|set| has(&[set], 1)[4]);
    assert!(long > 50 * short, "{short} and {long} ns");
}

#[test]
fn values_reach_a_guest_policy_and_no_other_guest() {
    let set = [
        "vm.a.guest_policy=one-cpu",
        "vm.a.own.cpu=5",
        "vm.a.own.lanes=2",
        "vm.a.own.work=1 ms",
    ];
    let plan = plan(&set).expect("valid");
    let parameters = &plan.cells[0].parameters;
    assert_eq!(parameters["vm.*.own.cpu"], 5);
    assert_eq!(parameters["vm.a.own.lanes"], 2, "the workload's");
    let outcome = run(&plan.cells[0].config, &CallOff::new()).unwrap_or_else(|failure| panic!("{failure}"));
    let refused = |vm: usize| outcome.vms[vm].counters.get("guest.policy_refusals").copied();
    // The guest has one CPU.
    assert!(
        refused(0).is_some_and(|count| count > 0),
        "CPU 5 was asked for: {:?}",
        refused(0)
    );
    assert_eq!(refused(1), None);
    assert_eq!(outcome.vms[0].counters["lanes"], 2);
}

#[test]
fn what_is_set_is_scaled_and_is_among_the_parameters() {
    assert_eq!(has(&["vm.a.work=0.5"], 0)[0], 100);
    let plan = plan(&["vm.*.own.lanes=3"]).expect("valid");
    let parameters = &plan.cells[0].parameters;
    assert_eq!(parameters["vm.a.own.items"], 200);
    assert_eq!(parameters["vm.b.own.items"], 100);
    assert_eq!(parameters["vm.*.own.lanes"], 3);
    assert_eq!(parameters["vm.*.own.work"], "1 us");
}

#[test]
fn bad_names_and_values_are_refused_with_what_would_be_right() {
    let refused = [
        ("vm.a.own.itms=5", "did you mean \"items\""),
        (
            "vm.a.own.itms=5",
            "a parameter of \"mine\" and \"kernel\", one of items, work, share, lanes, eager",
        ),
        ("vm.a.own.items=0", "a whole number from 1 to 1000000"),
        ("vm.a.own.items=1.5", "a whole number from 1 to 1000000"),
        ("vm.a.own.items=many", "a whole number from 1 to 1000000"),
        ("vm.a.own.lanes=9", "a whole number from 1 to 8"),
        ("vm.a.own.share=1.5", "a number from 0 to 1"),
        ("vm.a.own.work=5 parsecs", "us"),
        ("vm.a.own.eager=perhaps", "true or false"),
        (
            "vm.other.own.items=5",
            "a guest with a workload or policy of the program's own",
        ),
        ("vm.*.own.itms=5", "own.itms"),
        ("vm.a.own.cpu=1", "a parameter of"),
        ("vm.a.own=5", "a known key"),
    ];
    for (set, said) in refused {
        let problems = plan(&[set]).err().unwrap_or_else(|| panic!("{set} is taken"));
        assert!(problems.contains(said), "{set}: {problems}");
    }
}
