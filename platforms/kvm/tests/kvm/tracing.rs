//! KVM's tracepoints, if this process may read them. They are recorded in a separate instance, which does not disturb
//! other tracing.

use std::fs;
use std::path::PathBuf;

const ROOT: &str = "/sys/kernel/tracing";
/// Size of each CPU's buffer, enough for tens of thousands of events.
const BUFFER_KIB: &str = "8192";

/// A recording of events, which ends when this is dropped.
pub struct Tracing {
    instance: PathBuf,
}

impl Tracing {
    /// Starts to record `events`, named as in `kvm/kvm_hypercall`. Returns `None` if there are no tracepoints or this
    /// process may not use them.
    pub fn of(events: &[&str]) -> Option<Tracing> {
        let instance = PathBuf::from(ROOT).join(format!("instances/holdfast-{}", std::process::id()));
        fs::create_dir(&instance).ok()?;
        let tracing = Tracing { instance };
        tracing.write("buffer_size_kb", BUFFER_KIB)?;
        for event in events {
            tracing.write(&format!("events/{event}/enable"), "1")?;
        }
        Some(tracing)
    }

    fn write(&self, file: &str, text: &str) -> Option<()> {
        fs::write(self.instance.join(file), text).ok()
    }

    /// Returns the fields of each recorded event named `name`, as the kernel prints them.
    pub fn events(&self, name: &str) -> Vec<String> {
        let trace = fs::read_to_string(self.instance.join("trace")).unwrap_or_default();
        let mark = format!(": {name}: ");
        let fields = trace.lines().filter_map(|line| line.split_once(&mark));
        fields.map(|(_, fields)| fields.to_owned()).collect()
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.instance);
    }
}
