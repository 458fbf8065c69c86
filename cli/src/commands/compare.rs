//! `holdfast compare`.

use comfy_table::CellAlignment;
use holdfast_lab::compare::{self, Compared, Judgment, Row};
use holdfast_lab::display::matrix::proven;
use holdfast_lab::display::{changes, verdict};
use holdfast_lab::results::{self, Results};
use holdfast_lab::service::{Latency, by_latency};
use holdfast_lab::sheet::Sheet;
use holdfast_lab::stats::Method;
use holdfast_lab::sweep::{self, Along};

use super::run::compared;
use crate::Done;
use crate::args::{CompareArgs, CompareMetric, Format};
use crate::error::Result;
use crate::output::{self, dash, optional, say};
use crate::refused::Refused;

/// The word for the variants in `--along`.
const VARIANT: &str = "variant";
/// Most comparisons that are shown one by one without `--all`.
const ROWS_MAX: usize = 8;

/// Compares two result files, or the variants of one.
pub fn compare(args: &CompareArgs) -> Result<Done> {
    let whole = with(args.metric, results::read(&args.a)?)?;
    let key = args.along.as_deref().filter(|key| *key != VARIANT);
    if let Some(key) = key {
        if args.baseline.is_some() {
            return Err(Refused::misplaced("--baseline", "--along variant, or no --along").into());
        }
        let shown = args.filter.filter().of(whole)?;
        along(&sweep::along(&shown, key)?, args.format)?;
        return Ok(Done::Whole);
    }
    let first = whole.cases.first().map(|case| case.variant.clone());
    let baseline = if args.b.is_some() {
        None
    } else {
        args.baseline.clone().or(first)
    };
    let filter = args.filter.filter();
    let one_by_one = |mut results: Results| {
        if args.all {
            results.totals.clear();
        }
        results
    };
    let a = one_by_one(filter.with(whole, baseline.as_deref())?);
    let compared = match &args.b {
        Some(b) => {
            let b = one_by_one(filter.of(with(args.metric, results::read(b)?)?)?);
            compare::files(&a, &b)?
        }
        None => compare::variants(&a, args.baseline.as_deref())?,
    };
    match args.format {
        Format::Json => {
            for remark in &compared.remarks {
                say!("remark: {remark}");
            }
            output::json(&compared)?;
        }
        Format::Table => print(&compared, args.all)?,
    }
    Ok(Done::Whole)
}

/// Returns `results` with the metric that is asked for in place of their own.
fn with(metric: Option<CompareMetric>, results: Results) -> Result<Results, Refused> {
    let Some(metric) = metric else { return Ok(results) };
    let latency = match metric {
        CompareMetric::P50 => Latency::P50,
        CompareMetric::P99 => Latency::P99,
    };
    let chosen = by_latency(&results, latency);
    if chosen.cases.is_empty() && !results.cases.is_empty() {
        let found = "--metric with results of guests that count no operations";
        return Err(Refused::instead(
            found.to_owned(),
            "their own metric, without it".to_owned(),
        ));
    }
    Ok(chosen)
}

/// Prints a comparison: verdict and matrix, then each comparison by itself.
fn print(found: &Compared, all: bool) -> Result<()> {
    if !found.matrix.rows.is_empty() {
        output::line(&compared(found))?;
    }
    if found.rows.len() <= ROWS_MAX || all {
        let heads = "case | guest | A | B | mean A | mean B | unit | B against A".split(" | ");
        let mut sheet = Sheet::new(heads, 4);
        for row in &found.rows {
            sheet.rows.push(vec![
                row.case.clone(),
                row.vm.clone(),
                row.variant_a.clone(),
                row.variant_b.clone(),
                optional(row.mean_a),
                optional(row.mean_b),
                row.unit.clone(),
                verdict(row),
            ]);
        }
        let sheet = sheet.without_one("case").without_one("guest");
        let mut table = output::table(&sheet.heads, sheet.texts);
        if let Some(verdict) = table.column_mut(sheet.heads.len() - 1) {
            verdict.set_cell_alignment(CellAlignment::Left);
        }
        table.add_rows(&sheet.rows);
        output::line(&format!("\n{table}"))?;
        let is_paired = |row: &Row| {
            row.comparison
                .is_some_and(|comparison| comparison.method == Method::PairedT)
        };
        let paired = if found.rows.iter().all(is_paired) {
            " Paired by seed."
        } else {
            ""
        };
        let note = match found.comparisons {
            0 | 1 => "Ratios are of geometric means; in brackets the 95 % confidence interval.".to_owned(),
            count => format!(
                "Ratios are of geometric means; in brackets their intervals: with 95 % confidence all {count} hold \
                 together."
            ),
        };
        output::line(&format!("\n{}", output::wrapped(&format!("{note}{paired}"))))?;
    } else {
        let count = found.rows.len();
        output::line(&format!("\n`--all` shows means and intervals of {count} comparisons."))?;
    }
    for remark in &found.remarks {
        output::line(&output::wrapped(&format!("Remark: {remark}.")))?;
    }
    Ok(())
}

/// Prints what the values of a swept key buy.
fn along(along: &Along, format: Format) -> Result<()> {
    if format == Format::Json {
        return output::json(along);
    }
    let heads = "case | variant | guest | from | to | mean | mean | unit | change, % | interval, % | proven";
    let mut sheet = Sheet::new(heads.split(" | "), 5);
    for row in &along.rows {
        let interval = row.comparison.and_then(|comparison| comparison.interval);
        sheet.rows.push(vec![
            row.case.clone(),
            row.variant.clone(),
            row.vm.clone(),
            row.from.clone(),
            row.to.clone(),
            optional(row.mean_from),
            optional(row.mean_to),
            row.unit.clone(),
            dash(row.change_percent, |change| format!("{change:+.1}")),
            dash(interval, changes),
            dash(row.judgment, |judgment: Judgment| proven(judgment).to_owned()),
        ]);
    }
    let sheet = sheet.without_one("case").without_one("variant").without_one("guest");
    let mut table = output::table(&sheet.heads, sheet.texts);
    table.add_rows(&sheet.rows);
    output::line(&table.to_string())?;
    output::line(&output::wrapped(&format!(
        "\nMeans are geometric. With 95 % confidence all {} intervals hold together. Equal: proven to differ by less \
         than 0.5 %.",
        along.comparisons
    )))
}
