//! `holdfast compare`.

use holdfast_lab::compare;
use holdfast_lab::display::verdict;
use holdfast_lab::results;

use crate::Done;
use crate::args::{CompareArgs, Format};
use crate::output::{self, optional, say};

/// Compares two result files, or the variants of one.
pub fn compare(args: &CompareArgs) -> anyhow::Result<Done> {
    let a = results::read(&args.a)?;
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
