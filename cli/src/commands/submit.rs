//! `holdfast submit`.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_lab::file;
use holdfast_lab::keys::Parameters;
use holdfast_lab::rerun::quoted;
use holdfast_lab::shipped::costs;
use holdfast_lab::units::{self, Cache, Header, Job, Unit, Units};

use crate::Done;
use crate::args::{Engine, MergeArgs, MergeFormat, SubmitArgs};
use crate::commands::merge::merge;
use crate::error::{Error, Result};
use crate::experiment;
use crate::extended;
use crate::output::{self, note, say};
use crate::progress::Bar;
use crate::refused::{Refused, Skipped};
use crate::signal;

/// Files of a submitted plan.
struct Files {
    plan: PathBuf,
    cache: PathBuf,
    job: PathBuf,
    results: PathBuf,
}

/// Gives the units of an experiment to an engine.
pub fn submit(args: &SubmitArgs) -> Result<Done> {
    let options = experiment::options(&args.experiment, &args.plan, &args.adaptive)?;
    let plan = experiment::plan(&args.experiment, &options)?;
    experiment::confirm(&plan, args.plan.yes)?;
    let units = Units::new(plan, &args.experiment, extended::build());
    let folder = std::path::absolute(&args.out).map_err(Error::of("cannot find the working folder"))?;
    let name = units.plan.experiment.name.clone();
    let extension = match args.engine {
        Engine::Local => "sh",
        Engine::Slurm => "sbatch",
        Engine::Hyperqueue => "hq.toml",
        Engine::Dask => "dask.py",
        Engine::Kubernetes => "kubernetes.json",
    };
    let files = Files {
        plan: folder.join(format!("{name}.plan.jsonl")),
        cache: folder.join("cache"),
        job: folder.join(format!("{name}.{extension}")),
        results: folder.clone(),
    };
    let mut before = Vec::new();
    loop {
        let needed = units::needed(&units, Some(&Cache::at(&files.cache)));
        let left = plan_lines(&units, &needed.missing, &files);
        let job = job(args, name.clone(), &left, &files, &folder)?;
        let text = text(args, &job, &folder);
        if args.dry_run {
            output::raw(&text)?;
            return Ok(Done::Whole);
        }
        Cache::open(&files.cache).map_err(Refused::Unwritable)?;
        fs::create_dir_all(&job.logs).map_err(Error::of(format!("cannot make {}", job.logs)))?;
        file::write(&files.plan, left.text.as_bytes())?;
        file::write(&files.job, text.as_bytes())?;
        // Units that a round left without a record would be left by the next one too.
        if needed.missing.is_empty() || needed.missing == before {
            if before.is_empty() {
                note!("all {} units are in the cache", needed.all.len());
            }
            return collect(&files);
        }
        let done = match args.engine {
            Engine::Local => local(&job, &units, &needed.missing, &files)?,
            Engine::Slurm => return give(args, &["sbatch"], &files),
            Engine::Hyperqueue => return give(args, &["hq", "job", "submit-file"], &files),
            Engine::Dask => dask(&files)?,
            Engine::Kubernetes => return give(args, &["kubectl", "apply", "-f"], &files),
        };
        if done == Done::Interrupted {
            return Ok(done);
        }
        if units.plan.options.adaptive.is_none() {
            let collected = collect(&files)?;
            return Ok(if done == Done::Whole { collected } else { done });
        }
        before = needed.missing;
    }
}

/// Returns the job for the units that are left.
fn job(args: &SubmitArgs, name: String, left: &Left, files: &Files, folder: &Path) -> Result<Job> {
    let shards = args.shards.unwrap_or_else(|| match args.engine {
        Engine::Local => SHARDS_PER_CPU * thread::available_parallelism().map_or(1, |count| count.get() as u32),
        _ => units::shards(&left.costs, left.expected),
    });
    let program = std::env::current_exe().map_err(Error::of("cannot find this program"))?;
    Ok(Job {
        name,
        program: args.program.clone().unwrap_or_else(|| program.display().to_string()),
        plan: files.plan.display().to_string(),
        cache: files.cache.display().to_string(),
        logs: folder.join("logs").display().to_string(),
        shards: shards.clamp(1, (left.costs.len() as u32).max(1)),
        jobs: args.plan.jobs.jobs.unwrap_or(1),
    })
}

/// Returns what is submitted.
fn text(args: &SubmitArgs, job: &Job, folder: &Path) -> String {
    match args.engine {
        Engine::Local => local_script(job),
        Engine::Slurm => job.slurm(),
        Engine::Hyperqueue => job.hyperqueue(),
        Engine::Dask => job.dask(),
        Engine::Kubernetes => job.kubernetes(&args.image, &args.claim, &folder.display().to_string()),
    }
}

/// The lines of the units to run.
struct Left {
    text: String,
    /// Their predicted CPU times in seconds.
    costs: Vec<Option<f64>>,
    /// The time of a unit of which no record says it.
    expected: Option<f64>,
}

/// Returns the plan with its `missing` units.
fn plan_lines(units: &Units, missing: &[usize], files: &Files) -> Left {
    let cache = Cache::at(&files.cache);
    let cells = units.plan.cells.len();
    let predicted: Vec<Option<f64>> = units.ids[..cells].iter().map(|id| cache.predicted_s(*id)).collect();
    let plan = &units.plan;
    let measured = costs().mean_run_s(&plan.experiment.name);
    let mut left = Left {
        text: Header::of(units).line(),
        costs: Vec::new(),
        // Work is taken as proportional to the scale.
        expected: measured.map(|run| run * plan.scale / plan.experiment.scale),
    };
    for index in missing {
        let unit = Unit {
            predicted_s: predicted[index % cells],
            // Every task reads all lines, and makes the cells of its own from the plan.
            parameters: Parameters::default(),
            ..Unit::of(units, *index)
        };
        left.text.push_str(&unit.line());
        left.costs.push(unit.predicted_s);
    }
    left
}

/// Merges the cache into results, and prints them.
fn collect(files: &Files) -> Result<Done> {
    merge(&MergeArgs {
        inputs: vec![files.plan.clone(), files.cache.clone()],
        format: MergeFormat::Table,
        out: Some(files.results.clone()),
        missing: None,
        mixed_builds: false,
        skip_damaged: false,
    })
}

/// Starts a program with the job's file.
fn start_with(words: &[&str], files: &Files) -> Result<ExitStatus> {
    Command::new(words[0])
        .args(&words[1..])
        .arg(&files.job)
        .status()
        .map_err(|error| {
            let lack = Skipped {
                what: words.join(" "),
                lack: format!("cannot start it: {error}; the job is in {}", files.job.display()),
            };
            lack.into()
        })
}

/// Submits the job's file, and says how to go on.
fn give(args: &SubmitArgs, words: &[&str], files: &Files) -> Result<Done> {
    let status = start_with(words, files)?;
    let shown = |path: &Path| quoted(&path.display().to_string());
    if args.adaptive.until_ci.is_some() {
        note!("when these units are done, the same command submits the next round, or prints the results");
    }
    note!(
        "what is done so far, and the results at the end:\n  holdfast merge {} {} --out {}",
        shown(&files.plan),
        shown(&files.cache),
        shown(&files.results)
    );
    Ok(if status.success() { Done::Whole } else { Done::Failed })
}

/// Runs the job's file in Python, until Dask has done its tasks.
fn dask(files: &Files) -> Result<Done> {
    let call_off = signal::call_off()?;
    let status = start_with(&["python3"], files)?;
    if call_off.is_called() {
        say!("incomplete: interrupted; the same command resumes");
        return Ok(Done::Interrupted);
    }
    Ok(if status.success() { Done::Whole } else { Done::Failed })
}

/// The commands of the local engine, for --dry-run.
fn local_script(job: &Job) -> String {
    let line = |number: u32| -> String {
        let words = job.words(&format!("{number}/{}", job.shards));
        words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ") + " > /dev/null &\n"
    };
    let lines: String = (1..=job.shards).map(line).collect();
    format!("#!/bin/sh\n{lines}wait\n")
}

/// Shards for each CPU of this machine. The last ones to end are then short, also without predicted costs.
const SHARDS_PER_CPU: u32 = 8;

/// How often a shard of a lost process begins again.
const RETRIES: u32 = 3;

/// Time between two looks at the processes.
const LOOK: Duration = Duration::from_millis(100);

/// Runs the shards of the `missing` units as processes of this machine, as many at a time as it has CPUs.
fn local(job: &Job, units: &Units, missing: &[usize], files: &Files) -> Result<Done> {
    let call_off = signal::call_off()?;
    let at_once = thread::available_parallelism()
        .map_or(1, |count| count.get())
        .div_ceil(job.jobs as usize);
    let mut waiting: Vec<(u32, u32)> = (1..=job.shards).rev().map(|number| (number, 0)).collect();
    let mut running: Vec<(u32, u32, Child)> = Vec::new();
    let cache = Cache::at(&files.cache);
    let bar = Bar::counted("units");
    let mut failed = false;
    let mut next_count = Instant::now();
    while !waiting.is_empty() || !running.is_empty() {
        if call_off.is_called() {
            // The processes got Ctrl-C too; another signal is passed on by ending them. Their records are in the cache.
            for (_, _, child) in &mut running {
                let _ = child.kill();
                let _ = child.wait();
            }
            say!("incomplete: interrupted; the same command resumes");
            return Ok(Done::Interrupted);
        }
        while running.len() < at_once.max(1) {
            let Some((number, tries)) = waiting.pop() else { break };
            running.push((number, tries, start(job, number)?));
        }
        let mut still = Vec::new();
        for (number, tries, mut child) in running {
            match child
                .try_wait()
                .map_err(Error::of(format!("cannot wait for shard {number}")))?
            {
                None => still.push((number, tries, child)),
                Some(status) if is_lost(status) && tries < RETRIES => {
                    note!("shard {number} of {} was lost ({status}), and begins again", job.shards);
                    waiting.push((number, tries + 1));
                }
                Some(status) => failed |= !status.success(),
            }
        }
        running = still;
        // To count many records takes long: at most a hundredth of the time.
        let begun = Instant::now();
        if begun >= next_count {
            let done = missing.iter().filter(|index| cache.has(units.ids[**index])).count();
            bar.at(done as u64, missing.len() as u64, job.name.clone());
            next_count = begun + (begun.elapsed() * 100).max(Duration::from_secs(1));
        }
        thread::sleep(LOOK);
    }
    bar.finish();
    Ok(if failed { Done::Failed } else { Done::Whole })
}

/// Returns whether a process ended without a decision of its own.
fn is_lost(status: ExitStatus) -> bool {
    !matches!(status.code(), Some(0..=2))
}

/// Starts the process of a shard. Its messages go to a file.
fn start(job: &Job, number: u32) -> Result<Child> {
    let path = Path::new(&job.logs).join(format!("{}.{number}.log", job.name));
    let failed = || Error::of(format!("cannot write {}", path.display()));
    let mut log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(failed())?;
    writeln!(log, "shard {number} of {}", job.shards).map_err(failed())?;
    let words = job.words(&format!("{number}/{}", job.shards));
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    command.spawn().map_err(Error::of(format!("cannot start {}", words[0])))
}
