//! `holdfast report`.

use std::path::Path;

use holdfast_lab::diagnostic::{Place, Problem, Problems};
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
    let results = results::read(&args.results)?;
    if let Some(folder) = &args.svg {
        return draw(args, &results, folder);
    }
    if let Some(folder) = &args.csv {
        return tables(&results, folder, "csv", |table| table.csv(&results).into_bytes());
    }
    if let Some(folder) = &args.parquet {
        return parquet(&results, folder);
    }
    let path = match &args.out {
        Some(path) => path.clone(),
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
    for table in Tidy::ALL {
        let path = folder.join(format!("{}.{}.{extension}", results.experiment, table.name()));
        output::check(Some(&path))?;
        file::write(&path, &written(table))?;
        note!("table: {}", path.display());
    }
    Ok(Done::Whole)
}

/// Writes the charts as separate files.
fn draw(args: &ReportArgs, results: &Results, folder: &Path) -> Result<Done> {
    let drawings = report::drawings(results, &args.case);
    if drawings.is_empty() {
        let mut names: Vec<&str> = results.cases.iter().map(|case| case.case.as_str()).collect();
        names.dedup();
        let problem = Problem {
            place: Place::whole("--case"),
            key: String::new(),
            found: format!("{:?}", args.case),
            expected: format!("the beginning of one of {}", names.join(", ")),
        };
        return Err(Problems(vec![problem]).into());
    }
    for drawing in drawings {
        let path = folder.join(drawing.name).with_extension("svg");
        output::check(Some(&path))?;
        file::write(&path, drawing.svg.as_bytes())?;
        note!("drawing: {}", path.display());
    }
    Ok(Done::Whole)
}
