//! Reads an experiment file: head, layers of settings, published figures.

mod counted;
mod instances;
mod published;

use instances::instances;
use published::published;
pub use published::{Published, Quantity};

use holdfast_workloads::Workload;

use crate::diagnostic::{Findings, Place, Problems};
use crate::document::{self, Node, Reader, Table, Value, join};
use crate::draft::{TASKS_MAX, VMS_MAX};
use crate::groups::GROUPS_MAX;
use crate::keys::{Names, Setting};
use crate::scale::bad_scale;
use crate::swept::Swept;

/// Metric of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Seconds from start to end of the workload.
    Elapsed,
    /// Operations per second.
    Throughput,
    /// What each guest's own users ask: throughput of a workload that counts operations, elapsed time of others.
    Own,
}

impl Metric {
    /// Returns the name in files.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Elapsed => "elapsed",
            Metric::Throughput => "throughput",
            Metric::Own => "own",
        }
    }

    /// Returns the metric of a guest with `workload`.
    pub(crate) fn of(self, workload: &Workload) -> Metric {
        match self {
            Metric::Own if workload.counts_operations() => Metric::Throughput,
            Metric::Own => Metric::Elapsed,
            stated => stated,
        }
    }

    /// Returns the default direction.
    fn better(self) -> Better {
        match self {
            Metric::Elapsed | Metric::Own => Better::Lower,
            Metric::Throughput => Better::Higher,
        }
    }
}

/// Direction that is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Lower values are better.
    Lower,
    /// Higher values are better.
    Higher,
}

impl Better {
    /// Returns the name in files.
    pub fn name(self) -> &'static str {
        match self {
            Better::Lower => "lower",
            Better::Higher => "higher",
        }
    }
}

/// A named layer of settings.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Name in the results.
    pub name: String,
    /// Description in one line.
    pub title: Option<String>,
    /// The settings of this layer.
    pub settings: Vec<Setting>,
    /// The swept values among them.
    pub swept: Vec<Swept>,
    /// For a case: the variants that it is run with, or `None` for all.
    pub variants: Option<Vec<Node>>,
}

/// The axis that a sweep multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Each case is run with each value.
    Cases,
    /// Each variant is run with each value.
    Variants,
}

/// A key with several values.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The key, as a path.
    pub key: String,
    /// The values of the key.
    pub values: Vec<Node>,
    /// The axis that it multiplies.
    pub axis: Axis,
}

/// An experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Name as it appears in results.
    pub name: String,
    /// Name of its file in messages.
    pub file: String,
    /// Text of its file.
    pub text: String,
    /// Description in one line.
    pub title: String,
    /// Source of setup and figures.
    pub source: Option<String>,
    /// The setup in words.
    pub setup: Option<String>,
    /// The metric.
    pub metric: Metric,
    /// Unit of the metric, unless each guest has its own.
    pub unit: String,
    /// Direction that is better, unless each guest has its own.
    pub better: Better,
    /// Runs of each cell.
    pub seeds: u32,
    /// Share of the full-size work.
    pub scale: f64,
    /// Names of guests and tasks.
    pub names: Names,
    /// Settings of the file itself.
    pub base: Vec<Setting>,
    /// The cases, at least one.
    pub cases: Vec<Layer>,
    /// The variants, at least one.
    pub variants: Vec<Layer>,
    /// The sweeps.
    pub sweeps: Vec<Sweep>,
    /// Published figures.
    pub published: Vec<(Published, Place)>,
}

/// Limit on the cases or variants of a file.
const LAYERS_MAX: usize = 1000;
/// Limit on the seeds of an experiment.
pub const SEEDS_MAX: u32 = 100_000;

impl Experiment {
    /// Returns the unit of the metric of a guest with `workload`.
    pub(crate) fn unit_of(&self, workload: &Workload) -> &str {
        match self.metric {
            Metric::Own => workload.throughput_unit().unwrap_or(&self.unit),
            _ => &self.unit,
        }
    }

    /// Returns the direction that is better for a guest with `workload`.
    pub(crate) fn better_of(&self, workload: &Workload) -> Better {
        match self.metric {
            Metric::Own => self.metric.of(workload).better(),
            _ => self.better,
        }
    }

    /// Reads an experiment. `file`: its name in messages. Settings are only checked when a
    /// [plan](crate::plan::Plan) is made.
    ///
    /// # Errors
    /// All mistakes in the structure.
    pub fn parse(file: &str, text: &str) -> Result<Experiment, Problems> {
        let document = document::parse(file, text)?;
        let mut findings = Findings::default();
        let start = Place::new(&file.into(), 1);
        let experiment = read(file, text, &document, &start, &mut findings);
        findings
            .conclude(experiment)
            .map(|experiment| experiment.expect("an experiment without problems is whole"))
    }
}

/// Returns the seconds in the denominator of a throughput `unit`.
pub fn rate_seconds(unit: &str) -> Option<f64> {
    match unit.rsplit_once('/')?.1 {
        "s" => Some(1.0),
        "min" => Some(60.0),
        _ => None,
    }
}

fn read(file: &str, text: &str, document: &Table, start: &Place, findings: &mut Findings) -> Option<Experiment> {
    let mut reader = Reader::new(document, start.clone(), findings);
    let name = reader.file_name("name");
    let title = reader.text("title");
    let source = reader.optional_text("source").map(str::to_owned);
    let setup = reader.optional_text("setup").map(|setup| setup.trim().to_owned());
    let metric = match reader.text("metric") {
        None => None,
        Some(text) => reader.choose(
            "metric",
            text,
            &[
                ("elapsed", Metric::Elapsed),
                ("throughput", Metric::Throughput),
                ("own", Metric::Own),
            ],
        ),
    };
    if metric == Some(Metric::Own) {
        for key in ["unit", "better"] {
            if let Some(found) = reader.optional(key).map(|node| node.value.to_string()) {
                let place = reader.place_of(key);
                let expected = "none with metric = \"own\": each workload has its own";
                reader.findings().add(&place, key, found, expected);
            }
        }
    }
    let unit = reader.optional_text("unit").map(str::to_owned);
    if metric == Some(Metric::Throughput)
        && let Some(unit) = &unit
        && rate_seconds(unit).is_none()
    {
        let place = reader.place_of("unit");
        let expected = "a unit that ends in /s or /min";
        reader.findings().add(&place, "unit", format!("{unit:?}"), expected);
    }
    let better = match reader.optional_text("better") {
        None => metric.map(Metric::better),
        Some(text) => reader.choose("better", text, &[("lower", Better::Lower), ("higher", Better::Higher)]),
    };
    let seeds = reader.whole("seeds", 1, SEEDS_MAX).unwrap_or(5);
    let scale_place = reader.place_of("scale");
    let scale = match reader.optional("scale").map(|node| &node.value) {
        // What is not finite is a bad scale, not a bad number.
        Some(Value::Float(scale)) => *scale,
        Some(_) => reader.optional_number("scale").unwrap_or(1.0),
        None => 1.0,
    };
    if let Some((found, expected)) = bad_scale(scale) {
        reader.findings().add(&scale_place, "scale", found, expected);
    }

    let mut names = Names::default();
    let mut base = Vec::new();
    if let Some(limit) = reader.optional("limit") {
        base.push(Setting {
            path: "limit".to_owned(),
            node: limit.clone(),
        });
    }
    for section in ["machine", "host", "guest"] {
        if let Some((table, _)) = reader.optional_table(section) {
            flatten(table, section, &mut base);
        }
    }
    (names.vms, names.families) = instances(&mut reader, "vm", VMS_MAX, &mut base);
    (names.groups, _) = instances(&mut reader, "group", GROUPS_MAX, &mut base);
    (names.tasks, _) = instances(&mut reader, "task", TASKS_MAX, &mut base);
    if names.vms.is_empty() && !reader.has("vm") {
        reader.missing("vm", "at least one guest, as [[vm]]");
    }
    let cases = layers(&mut reader, "cases");
    let variants = layers(&mut reader, "variants");
    let sweeps = sweeps(&mut reader);
    let published = published(&mut reader, metric, unit.as_deref());
    reader.finish();

    let metric = metric?;
    let default_unit = match metric {
        Metric::Elapsed | Metric::Own => "s",
        Metric::Throughput => "1/s",
    };
    Some(Experiment {
        name: name?.to_owned(),
        file: file.to_owned(),
        text: text.to_owned(),
        title: title?.to_owned(),
        source,
        setup,
        metric,
        unit: unit.unwrap_or_else(|| default_unit.to_owned()),
        better: better?,
        seeds,
        scale,
        names,
        base,
        cases,
        variants,
        sweeps,
        published,
    })
}

/// Returns every leaf of `table` as a setting: `{ a = { b = 1 } }` sets `PREFIX.a.b`.
fn flatten(table: &Table, prefix: &str, settings: &mut Vec<Setting>) {
    for (key, node) in &table.entries {
        let path = join(prefix, key);
        match &node.value {
            Value::Table(inner) => flatten(inner, &path, settings),
            _ => settings.push(Setting {
                path,
                node: node.clone(),
            }),
        }
    }
}

fn layers(reader: &mut Reader<'_, '_>, key: &'static str) -> Vec<Layer> {
    let tables = reader.tables(key);
    let mut layers: Vec<Layer> = Vec::new();
    if let Some((_, place)) = tables.get(LAYERS_MAX) {
        reader.findings().add(
            place,
            key,
            format!("{} of them", tables.len()),
            format!("at most {LAYERS_MAX}"),
        );
        return layers;
    }
    for (table, place) in tables {
        let mut inner = Reader::new(table, place.clone(), reader.findings());
        let name = inner.shown_name("name").unwrap_or_default().to_owned();
        let title = inner.optional_text("title").map(str::to_owned);
        let mut settings = Vec::new();
        if let Some((set, _)) = inner.optional_table("set") {
            flatten(set, "", &mut settings);
        }
        let name_place = inner.place_of("name");
        let variants = if key == "cases" { only(&mut inner) } else { None };
        inner.finish();
        if layers.iter().any(|layer| layer.name == name) {
            reader.findings().add(
                &name_place,
                format!("{key}.name"),
                format!("{name:?} twice"),
                "a name of its own",
            );
        }
        layers.push(Layer {
            name,
            title,
            settings,
            swept: Vec::new(),
            variants,
        });
    }
    if layers.is_empty() {
        layers.push(Layer {
            name: "default".to_owned(),
            title: None,
            settings: Vec::new(),
            swept: Vec::new(),
            variants: None,
        });
    }
    layers
}

/// Returns the variants that a case names.
fn only(reader: &mut Reader<'_, '_>) -> Option<Vec<Node>> {
    let node = reader.optional("variants")?;
    match &node.value {
        Value::Array(names) if !names.is_empty() => Some(names.clone()),
        other => {
            let (place, found) = (node.place.clone(), other.to_string());
            reader
                .findings()
                .add(&place, "cases.variants", found, "names of variants, as [\"a\", \"b\"]");
            None
        }
    }
}

impl Layer {
    /// Returns whether this case is run with `variant`.
    pub(crate) fn admits(&self, variant: &str) -> bool {
        // A sweep appends its values to the name after a space.
        let matches = |name: &String| {
            let rest = variant.strip_prefix(name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        let is_it = |node: &Node| matches!(&node.value, Value::Text(name) if matches(name));
        self.variants.as_ref().is_none_or(|names| names.iter().any(is_it))
    }
}

fn sweeps(reader: &mut Reader<'_, '_>) -> Vec<Sweep> {
    let mut sweeps = Vec::new();
    for (table, place) in reader.tables("sweeps") {
        let mut inner = Reader::new(table, place.clone(), reader.findings());
        let key = inner.text("key");
        let values = inner.optional("values");
        let axis = match inner.optional_text("of") {
            None => Some(Axis::Cases),
            Some(text) => inner.choose("of", text, &[("cases", Axis::Cases), ("variants", Axis::Variants)]),
        };
        let values = match values.map(|node| (&node.value, &node.place)) {
            Some((Value::Array(values), _)) if !values.is_empty() && values.len() <= LAYERS_MAX => Some(values.clone()),
            Some((other, place)) => {
                let expected = format!("1 to {LAYERS_MAX} values, as [1, 2, 4]");
                inner
                    .findings()
                    .add(place, join(&table.path, "values"), other.to_string(), expected);
                None
            }
            None => {
                inner.missing("values", "values, as [1, 2, 4]");
                None
            }
        };
        inner.finish();
        if let (Some(key), Some(values), Some(axis)) = (key, values, axis) {
            sweeps.push(Sweep {
                key: key.to_owned(),
                values,
                axis,
            });
        }
    }
    sweeps
}
