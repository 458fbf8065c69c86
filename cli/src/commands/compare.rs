//! `holdfast compare`.

use holdfast_lab::compare;
use holdfast_lab::display::{changes, verdict};
use holdfast_lab::results;
use holdfast_lab::sweep::{self, Along};

use crate::Done;
use crate::args::{CompareArgs, Format};
use crate::error::Result;
use crate::output::{self, dash, optional, say};

/// Compares two result files, or the variants of one.
pub fn compare(args: &CompareArgs) -> Result<Done> {
    let a = results::read(&args.a)?;
    if let Some(key) = &args.along {
        return along(&sweep::along(&a, key)?, args.format);
    }
    let compared = match &args.b {
        Some(b) => compare::files(&a, &results::read(b)?)?,
        None => compare::variants(&a, args.baseline.as_deref())?,
    };
    match args.format {
        Format::Json => {
            for remark in &compared.remarks {
                say!("remark: {remark}");
            }
            output::json(&compared)?;
        }
        Format::Table => {
            let mut table = output::table(
                "case | guest | A | B | mean A | mean B | unit | B against A".split(" | "),
                4,
            );
            for row in &compared.rows {
                table.add_row([
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
            output::line(&table.to_string())?;
            output::line("\nRatios are of geometric means; in brackets the 95 % confidence interval.")?;
            for remark in &compared.remarks {
                output::line(&format!("Remark: {remark}."))?;
            }
        }
    }
    Ok(Done::Whole)
}

/// Prints what the values of a swept key buy.
fn along(along: &Along, format: Format) -> Result<Done> {
    if format == Format::Json {
        output::json(along)?;
        return Ok(Done::Whole);
    }
    let heads = "case | variant | guest | from | to | mean | mean | unit | change, % | interval, % | better";
    let mut table = output::table(heads.split(" | "), 5);
    for row in &along.rows {
        let interval = row.comparison.and_then(|comparison| comparison.interval);
        table.add_row([
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
            dash(row.better, |better| if better { "yes" } else { "no, worse" }.to_owned()),
        ]);
    }
    output::line(&table.to_string())?;
    output::line(&format!(
        "\nMeans are geometric. With 95 % confidence all {} intervals hold together. A dash: neither is proven.",
        along.comparisons
    ))?;
    Ok(Done::Whole)
}
