//! Exploration of interleavings: all with a bounded number of preemptions, or random ones.

use std::cell::RefCell;
use std::rc::Rc;

use holdfast_locks::CpuId;
use holdfast_locks::conformance::{Job, World};

use crate::steps::{Chooser, Machine, Setup, StepCpu};

/// A reproducible stream of random numbers (SplitMix64).
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % limit
    }
}

/// Preempts at random, once in `stride` steps on average, and ends one halt in sixteen for no reason.
pub struct RandomWalk {
    pub random: Random,
    pub stride: u64,
}

impl Chooser for RandomWalk {
    fn choose(&mut self, options: &[u32]) -> u32 {
        if self.random.below(self.stride) != 0 {
            return options[0];
        }
        options[self.random.below(options.len() as u64) as usize]
    }

    fn spurious(&mut self) -> bool {
        self.random.below(16) == 0
    }
}

/// A random schedule in which no halt ends without a reason.
pub struct Calm(pub RandomWalk);

impl Chooser for Calm {
    fn choose(&mut self, options: &[u32]) -> u32 {
        self.0.choose(options)
    }
}

/// The decisions of one run, and how many alternatives each had.
#[derive(Default)]
struct Path {
    choices: Vec<(usize, usize)>,
    position: usize,
    preemptions: u32,
}

/// A chooser that follows a path, then always takes the first option.
struct DepthFirst {
    path: Rc<RefCell<Path>>,
    preemptions_max: u32,
}

impl Chooser for DepthFirst {
    fn choose(&mut self, options: &[u32]) -> u32 {
        let mut path = self.path.borrow_mut();
        let alternatives = if path.preemptions < self.preemptions_max {
            options.len()
        } else {
            1
        };
        let position = path.position;
        if position == path.choices.len() {
            path.choices.push((0, alternatives));
        }
        path.position += 1;
        let taken = path.choices[position].0;
        path.preemptions += u32::from(taken != 0);
        options[taken]
    }
}

/// Runs `jobs` under every schedule with at most `preemptions_max` preemptions. Returns the number of schedules, or the
/// first failure.
pub fn every_schedule(
    setup: Setup,
    preemptions_max: u32,
    jobs: impl Fn() -> Vec<(CpuId, Job<StepCpu>)>,
) -> Result<u64, String> {
    let path = Rc::new(RefCell::new(Path::default()));
    let mut runs = 0;
    loop {
        let chooser = DepthFirst {
            path: Rc::clone(&path),
            preemptions_max,
        };
        runs += 1;
        Machine::new(setup, Box::new(chooser))
            .run(jobs())
            .map_err(|failure| format!("run {runs}: {failure}"))?;
        let mut path = path.borrow_mut();
        (path.position, path.preemptions) = (0, 0);
        while let Some((taken, alternatives)) = path.choices.pop() {
            if taken + 1 < alternatives {
                path.choices.push((taken + 1, alternatives));
                break;
            }
        }
        if path.choices.is_empty() {
            return Ok(runs);
        }
    }
}

/// Runs `jobs` under `runs` random schedules, or until one fails.
pub fn random_schedules(setup: Setup, runs: u64, jobs: impl Fn() -> Vec<(CpuId, Job<StepCpu>)>) -> Result<(), String> {
    for seed in 0..runs {
        let chooser = RandomWalk {
            random: Random(seed),
            stride: 1 + seed % 8,
        };
        Machine::new(setup, Box::new(chooser))
            .run(jobs())
            .map_err(|failure| format!("seed {seed}: {failure}"))?;
    }
    Ok(())
}

/// The stepping machine as a world for the conformance suite. Each run takes another random schedule.
pub struct StepWorld {
    setup: Setup,
    seed: std::cell::Cell<u64>,
}

impl StepWorld {
    pub fn new(setup: Setup) -> Self {
        StepWorld { setup, seed: 1.into() }
    }
}

impl World for StepWorld {
    type Cpu = StepCpu;

    fn cpus(&self) -> u32 {
        self.setup.cpus
    }

    fn rounds(&self) -> u32 {
        40
    }

    fn run(&self, jobs: Vec<(CpuId, Job<StepCpu>)>) {
        let seed = self.seed.replace(self.seed.get() + 1);
        let chooser = RandomWalk {
            random: Random(seed),
            stride: 1 + seed % 4,
        };
        if let Err(failure) = Machine::new(self.setup, Box::new(chooser)).run(jobs) {
            panic!("seed {seed}: {failure}");
        }
    }

    fn interrupt(cpu: &StepCpu, target: CpuId, handler: Job<StepCpu>) -> bool {
        cpu.interrupt(target, handler);
        true
    }
}
