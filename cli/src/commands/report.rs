//! `holdfast report`.

use std::path::Path;

use holdfast_lab::results::Results;
use holdfast_lab::tidy::Tidy;
use holdfast_lab::{file, report, results};

use crate::Done;
use crate::args::ReportArgs;
use crate::error::Result;
use crate::output::{self, note};
use crate::refused::Refused;

/// Writes a page about a result file.
pub fn report(args: &ReportArgs) -> Result<Done> {
    let results = args.filter.filter().of(results::read(&args.results)?)?;
    if results.cases.is_empty() {
        let found = format!("{}, which has no case", args.results.display());
        return Err(Refused::instead(found, "results of at least one measured guest").into());
    }
    if let Some(folder) = &args.svg {
        return draw(&results, folder);
    }
    if let Some(folder) = &args.csv {
        return tables(&results, folder, "csv", |table| table.csv(&results).into_bytes());
    }
    if let Some(folder) = &args.parquet {
        return parquet(&results, folder);
    }
    let path = match &args.out {
        Some(place) => file::placed(place, Path::new(&format!("{}.html", results.experiment))),
        None if args.results.as_os_str() == file::STANDARD_INPUT => {
            return Err(Refused::instead(
                "results from standard input",
                "--out, --svg, --csv or --parquet with them",
            )
            .into());
        }
        None => args.results.with_extension("html"),
    };
    output::check(Some(&path))?;
    file::write(&path, report::html(&results).as_bytes())?;
    note!(
        "report: {} (open it in any browser; it needs no network)",
        path.display()
    );
    Ok(Done::Whole)
}

#[cfg(feature = "parquet")]
fn parquet(results: &Results, folder: &Path) -> Result<Done> {
    tables(results, folder, "parquet", |table| table.parquet(results))
}

#[cfg(not(feature = "parquet"))]
fn parquet(_: &Results, _: &Path) -> Result<Done> {
    Err(Refused::not_built("parquet").into())
}

/// Writes the tidy tables, each as a file of the bytes that `written` returns.
fn tables(results: &Results, folder: &Path, extension: &str, written: impl Fn(Tidy) -> Vec<u8>) -> Result<Done> {
    let paths = Tidy::ALL.map(|table| {
        let name = format!("{}.{}.{extension}", results.experiment, table.name());
        (table, folder.join(name))
    });
    for (_, path) in &paths {
        output::check(Some(path))?;
    }
    for (table, path) in paths {
        file::write(&path, &written(table))?;
        note!("table: {}", path.display());
    }
    Ok(Done::Whole)
}

/// Writes the charts as separate files.
fn draw(results: &Results, folder: &Path) -> Result<Done> {
    let drawings = report::drawings(results);
    if drawings.is_empty() {
        return Err(Refused::instead("results without samples", "at least one, to draw").into());
    }
    let path_of = |name: &str| folder.join(name).with_extension("svg");
    for drawing in &drawings {
        output::check(Some(&path_of(&drawing.name)))?;
    }
    for drawing in drawings {
        let path = path_of(&drawing.name);
        file::write(&path, drawing.svg.as_bytes())?;
        note!("drawing: {}", path.display());
    }
    Ok(Done::Whole)
}
