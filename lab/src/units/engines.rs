//! What engines run: a Slurm array script, a HyperQueue job file, a script for Dask, a Kubernetes manifest. Each runs
//! the shards of a plan's file, with one cache that all tasks see.

use std::fmt::Write as _;

use serde_json::json;

use crate::rerun::quoted;

/// Returns how many shards a cluster gets for units of these predicted CPU times in seconds. `expected`: the time of a
/// unit if none is predicted.
pub fn shards(costs: &[Option<f64>], expected: Option<f64>) -> u32 {
    /// CPU time of a shard in seconds. A cluster takes up to a second to start a task, and a lost one is done again.
    const SHARD_S: f64 = 60.0;
    /// Slurm's default limit on the tasks of an array is 1000 (`MaxArraySize`, slurm.conf(5)).
    const SHARDS_MAX: f64 = 1000.0;
    /// Without predictions: enough for most partitions, and few enough for short units.
    const SHARDS_UNPREDICTED: f64 = 200.0;
    let known: Vec<f64> = costs.iter().filter_map(|cost| *cost).collect();
    let mean = (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64);
    let shards = mean.or(expected).map_or(SHARDS_UNPREDICTED, |unit| {
        (unit * costs.len() as f64 / SHARD_S).ceil().min(SHARDS_MAX)
    });
    shards.clamp(1.0, costs.len().max(1) as f64) as u32
}

/// End of a script for Slurm. A process that was killed, as for lack of memory, or that crashed begins again, up to
/// three times. SIGTERM is no loss: Slurm sends it to a task that is canceled or out of time.
const REQUEUE: &str = "\
status=$?
case $status in
134|135|137|139) [ \"${SLURM_RESTART_COUNT:-0}\" -lt 3 ] && scontrol requeue \"$SLURM_JOB_ID\" ;;
esac
exit $status
";

/// Shards of a plan for an engine. All paths are absolute, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name of the experiment.
    pub name: String,
    /// The command `holdfast` on the machines.
    pub program: String,
    /// File of the plan.
    pub plan: String,
    /// Folder of the cache.
    pub cache: String,
    /// Folder of the tasks' outputs.
    pub logs: String,
    /// Number of shards.
    pub shards: u32,
    /// Runs at the same time in one task.
    pub jobs: u32,
}

impl Job {
    /// Returns the words that run `shard`.
    pub fn words(&self, shard: &str) -> Vec<String> {
        let jobs = self.jobs.to_string();
        let words = [
            &self.program,
            "--quiet",
            "run",
            "--units",
            &self.plan,
            "--shard",
            shard,
            "--jobs",
            &jobs,
            "--cache",
            &self.cache,
        ];
        words.map(str::to_owned).to_vec()
    }

    /// Returns a line for a shell that runs one shard. `number` is put between double quotes, where a shell expands it.
    fn shell(&self, number: &str) -> String {
        const PLACE: &str = "@SHARD@";
        let words: Vec<String> = self.words(PLACE).iter().map(|word| quoted(word)).collect();
        let shard = format!("\"{number}/{}\"", self.shards);
        words
            .join(" ")
            .replace(&format!("--shard {PLACE}"), &format!("--shard {shard}"))
    }

    /// Returns a script for `sbatch`: an array with a task for each shard.
    pub fn slurm(&self) -> String {
        let mut script = String::from("#!/bin/sh\n");
        let name = &self.name;
        for option in [
            format!("--job-name=holdfast-{name}"),
            format!("--array=1-{}", self.shards),
            format!("--cpus-per-task={}", self.jobs),
            // A task of a lost node begins again, and takes what it had done from the cache.
            "--requeue".to_owned(),
            format!("--output={}", quoted(&format!("{}/{name}.%a.log", self.logs))),
        ] {
            let _ = writeln!(script, "#SBATCH {option}");
        }
        let _ = writeln!(script, "{} > /dev/null", self.shell("$SLURM_ARRAY_TASK_ID"));
        script.push_str(REQUEUE);
        script
    }

    /// Returns a job file for `hq job submit-file`.
    pub fn hyperqueue(&self) -> String {
        let mut file = format!(
            "name = {}\nmax_fails = {}\n",
            json!(format!("holdfast-{}", self.name)),
            self.shards
        );
        for number in 1..=self.shards {
            let command = json!(self.words(&format!("{number}/{}", self.shards)));
            let log = |stream: &str| json!(format!("{}/{}.{number}.{stream}", self.logs, self.name));
            let _ = write!(
                file,
                "\n[[task]]\nid = {number}\ncommand = {command}\ncrash_limit = 5\nstdout = \"/dev/null\"\nstderr = {}\n\n[[task.request]]\n\
                 resources = {{ \"cpus\" = \"{}\" }}\n",
                log("log"),
                self.jobs
            );
        }
        file
    }

    /// Returns a Python script that gives the shards to Dask.
    pub fn dask(&self) -> String {
        const NUMBER: &str = "@SHARD@";
        let words = json!(self.words(&format!("{NUMBER}/{}", self.shards)));
        let log = json!(format!("{}/{}.{NUMBER}.log", self.logs, self.name));
        let shards = self.shards;
        format!(
            r#"#!/usr/bin/env python3
"""Runs the shards as tasks of Dask: of the cluster whose scheduler DASK_SCHEDULER_ADDRESS names, or of this machine."""
import subprocess
import sys

import dask.config
from distributed import Client

# A cluster on this machine would take up to a tenth of a CPU to watch itself.
dask.config.update_defaults({{"distributed": {{
    "admin": {{"tick": {{"interval": "1s"}}, "system-monitor": {{"interval": "10s"}}}},
    "worker": {{"profile": {{"enabled": False}}}},
}}}})

WORDS = {words}
LOG = {log}


def run(number):
    """Runs a shard, and returns its exit status. A process that was killed raises, so that Dask tries it again."""
    words = [word.replace("{NUMBER}", str(number)) for word in WORDS]
    with open(LOG.replace("{NUMBER}", str(number)), "a") as log:
        status = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log).returncode
    if not 0 <= status < 128:
        raise RuntimeError(f"shard {{number}}: exit status {{status}}")
    return status


if __name__ == "__main__":
    with Client() as client:
        tasks = client.map(run, range(1, {shards} + 1), retries=3, pure=False)
        sys.exit(max(client.gather(tasks)))
"#
        )
    }

    /// Returns an indexed Job for Kubernetes, as JSON. `claim` is the volume that all paths are on, mounted at `mount`.
    pub fn kubernetes(&self, image: &str, claim: &str, mount: &str) -> String {
        let line = format!("exec {} > /dev/null", self.shell("$((JOB_COMPLETION_INDEX + 1))"));
        let manifest = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": { "name": kubernetes_name(&self.name) },
            "spec": {
                "completions": self.shards,
                "parallelism": self.shards,
                "completionMode": "Indexed",
                "backoffLimit": 6 * self.shards,
                "template": { "spec": {
                    "restartPolicy": "OnFailure",
                    "containers": [{
                        "name": "holdfast",
                        "image": image,
                        "command": ["/bin/sh", "-c", line],
                        "resources": { "requests": { "cpu": self.jobs.to_string() } },
                        "volumeMounts": [{ "name": "shared", "mountPath": mount }],
                    }],
                    "volumes": [{ "name": "shared", "persistentVolumeClaim": { "claimName": claim } }],
                } },
            },
        });
        let mut text = serde_json::to_string_pretty(&manifest).expect("strings and numbers");
        text.push('\n');
        text
    }
}

/// Returns the name of a Kubernetes object: lower-case letters, digits and dashes.
fn kubernetes_name(name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let mut name = format!("holdfast-{}", name.chars().map(plain).collect::<String>());
    // A Job's name is part of its pods' names, which have at most 63 characters with their suffixes.
    name.truncate(50);
    name.trim_end_matches('-').to_owned()
}
