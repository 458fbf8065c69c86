//! Cache lines that sections under spinlocks touch, by operation and site.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::classes;
use crate::records::{Run, Section};
use crate::symbols::Symbols;

/// Mean lines of a site's sections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SiteLines {
    pub own: f64,
    pub cold: f64,
    pub shared: f64,
    /// Lines that other CPUs have changed, if this CPU itself held the lock before.
    pub elsewhere: Option<f64>,
    /// The same if another CPU held it before.
    pub moved: Option<f64>,
    /// Struct pages stored to, and the lines of other CPUs for each (the slope over all sections).
    pub pages: f64,
    pub per_page: Option<f64>,
}

/// The fewest sections of an operation at a site, and of all operations, whose mean is given.
const FEWEST: [usize; 2] = [30, 10];

/// The least standard deviation of the number of pages for a slope.
const LEAST_SPREAD: f64 = 2.0;

/// The sections of a machine whose CPUs work together.
pub struct Lines {
    of_operation: BTreeMap<(String, String, &'static str), Vec<Section>>,
    of_site: BTreeMap<(String, &'static str), Vec<Section>>,
}

impl Lines {
    /// Sorts the sections of `runs`. Those whose lock was waited for are left out: what their CPUs touch meanwhile is
    /// the lock's.
    pub fn of(runs: &[Run], symbols: &Symbols) -> Lines {
        let (mut of_operation, mut of_site) = (BTreeMap::new(), BTreeMap::new());
        for run in runs {
            for section in run.sections.iter().filter(|section| !section.waited) {
                let function = symbols.function(section.caller).to_owned();
                let class = classes::class(symbols, &run.offsets, section.lock, &function);
                let key = (run.operation.clone(), function.clone(), class);
                of_operation.entry(key).or_insert_with(Vec::new).push(*section);
                of_site.entry((function, class)).or_insert_with(Vec::new).push(*section);
            }
        }
        Lines { of_operation, of_site }
    }

    fn of_class(&self, class: &str, moved: bool) -> Vec<Section> {
        let sites = self.of_site.iter().filter(|((_, of), _)| *of == class);
        let sections = sites.flat_map(|(_, sections)| sections);
        sections.filter(|section| section.moved == moved).copied().collect()
    }

    /// The lines of the sections of `class` that `function` begins in `operation`. Means over too few sections are
    /// those of all operations.
    pub fn get(&self, operation: &str, function: &str, class: &'static str) -> Option<SiteLines> {
        let all = self.of_site.get(&(function.to_owned(), class))?;
        let own = self
            .of_operation
            .get(&(operation.to_owned(), function.to_owned(), class));
        let own = own.filter(|own| own.len() >= FEWEST[0]);
        let taken = own.unwrap_or(all);
        let moved = |sections: &[Section], moved| {
            let of: Vec<Section> = sections
                .iter()
                .filter(|section| section.moved == moved)
                .copied()
                .collect();
            (of.len() >= FEWEST[1]).then(|| mean(&of, |section| section.elsewhere))
        };
        (taken.len() >= FEWEST[1]).then(|| SiteLines {
            own: mean(taken, |section| section.own),
            cold: mean(taken, |section| section.cold),
            shared: mean(taken, |section| section.shared),
            elsewhere: moved(taken, false).or_else(|| moved(all, false)),
            moved: moved(taken, true).or_else(|| moved(all, true)),
            pages: mean(taken, |section| section.pages),
            per_page: slope(taken),
        })
    }
}

fn mean(of: &[Section], lines: impl Fn(&Section) -> u16) -> f64 {
    of.iter().map(|section| f64::from(lines(section))).sum::<f64>() / of.len() as f64
}

/// The lines of other CPUs for each page. `None`: the sections hardly differ in pages.
fn slope(of: &[Section]) -> Option<f64> {
    let (pages, lines) = (mean(of, |section| section.pages), mean(of, |section| section.elsewhere));
    let sum = |product: fn(f64, f64) -> f64| {
        let each = of
            .iter()
            .map(|section| product(f64::from(section.pages) - pages, f64::from(section.elsewhere) - lines));
        each.sum::<f64>() / of.len() as f64
    };
    let spread = sum(|pages, _| pages * pages);
    (spread >= LEAST_SPREAD * LEAST_SPREAD).then(|| sum(|pages, lines| pages * lines) / spread)
}

/// Returns a table of the classes on machines of several sizes, each with its name.
pub fn table(machines: &[(String, Lines)]) -> String {
    let mut text =
        "| class | machine | stayed | cold | shared | elsewhere | pages | moved | cold | shared | elsewhere | \
        pages |\n| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |\n"
            .to_owned();
    let mut classes: Vec<&str> = machines
        .iter()
        .flat_map(|(_, lines)| lines.of_site.keys().map(|(_, class)| *class))
        .collect();
    classes.sort_unstable();
    classes.dedup();
    for class in classes {
        for (name, lines) in machines {
            write!(text, "| {class} | {name} |").expect("a string takes every write");
            for moved in [false, true] {
                let sections = lines.of_class(class, moved);
                let mean = |of: fn(&Section) -> u16| {
                    let is_enough = sections.len() >= FEWEST[1];
                    if is_enough {
                        format!("{:.1}", mean(&sections, of))
                    } else {
                        "-".to_owned()
                    }
                };
                let [cold, shared, elsewhere] = [
                    mean(|section| section.cold),
                    mean(|section| section.shared),
                    mean(|section| section.elsewhere),
                ];
                let pages = mean(|section| section.pages);
                let count = sections.len();
                write!(text, " {count} | {cold} | {shared} | {elsewhere} | {pages} |").expect("as above");
            }
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(moved: bool, elsewhere: u16, pages: u16) -> Section {
        Section {
            caller: 0xffff_ffff_8100_0004,
            moved,
            elsewhere,
            pages,
            ..Section::default()
        }
    }

    fn lines(sections: Vec<Section>) -> Option<SiteLines> {
        let symbols = Symbols::parse("ffffffff81000000 T __schedule\nffffffff81000100 T end\n").expect("symbols");
        let run = Run {
            operation: "test".to_owned(),
            sections,
            ..Run::default()
        };
        let lines = Lines::of(&[run], &symbols);
        let found = lines.get("test", "__schedule", "rq");
        assert_eq!(found, lines.get("another operation", "__schedule", "rq"));
        found
    }

    #[test]
    fn lines_of_locks_that_moved_are_means_of_their_own() {
        let mut sections = vec![section(false, 2, 0); 20];
        sections.extend([section(true, 7, 0); 20]);
        let waited = Section {
            waited: true,
            ..section(true, 100, 0)
        };
        sections.extend([waited; 20]);
        let found = lines(sections).expect("enough sections");
        assert_eq!((found.elsewhere, found.moved), (Some(2.0), Some(7.0)));
        assert_eq!(found.per_page, None);
        assert_eq!(lines(vec![section(false, 1, 0); 9]), None, "too few");
    }

    #[test]
    fn lines_of_a_page_are_the_slope() {
        let sections = (0..20).map(|pages| section(true, 5 + 3 * pages, pages)).collect();
        let found = lines(sections).expect("enough sections");
        assert_eq!(found.per_page, Some(3.0));
        assert_eq!(found.elsewhere, None, "no CPU took the lock twice");
    }
}
