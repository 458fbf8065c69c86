//! What engines run: a Slurm array script, a HyperQueue job file, a Kubernetes manifest. Each runs the shards of a
//! plan's file, with one cache that all tasks see.

use std::fmt::Write as _;

use serde_json::json;

use crate::replay::quoted;

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
        let _ = writeln!(script, "exec {} > /dev/null", self.shell("$SLURM_ARRAY_TASK_ID"));
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
