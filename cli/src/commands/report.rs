//! `holdfast report`.

use holdfast_lab::{file, report, results};

use crate::Done;
use crate::args::ReportArgs;

/// Makes a page of a result file.
pub fn report(args: &ReportArgs) -> anyhow::Result<Done> {
    let results = results::read(&args.results)?;
    let page = report::html(&results);
    let path = match &args.out {
        Some(path) => path.clone(),
        None => args.results.with_extension("html"),
    };
    file::write(&path, page.as_bytes())?;
    eprintln!(
        "report: {} (open it in any browser; it needs no network)",
        path.display()
    );
    Ok(Done::Whole)
}
