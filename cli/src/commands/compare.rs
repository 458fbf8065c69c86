//! `holdfast compare`.

use holdfast_lab::compare::{self, Row};
use holdfast_lab::results;
use holdfast_lab::stats::{Method, Verdict};

use crate::Done;
use crate::args::{CompareArgs, Format};
use crate::output::{self, optional};

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
                eprintln!("remark: {remark}");
            }
            output::json(&compared)?;
        }
        Format::Table => {
            let mut table = output::table(
                &["case", "guest", "A", "B", "mean A", "mean B", "unit", "B against A"],
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

/// A comparison in words.
pub fn verdict(row: &Row) -> String {
    let Some(comparison) = row.comparison else {
        return "no samples".to_owned();
    };
    let interval = comparison
        .interval
        .map_or_else(String::new, |(low, high)| format!(" [{}, {}]", ratio(low), ratio(high)));
    let paired = if comparison.method == Method::PairedT {
        ", paired by seed"
    } else {
        ""
    };
    let judgement = match (comparison.verdict, row.better) {
        (Verdict::Identical, _) => return "identical, sample by sample".to_owned(),
        (Verdict::TooFewSamples, _) => "one sample proves nothing",
        (Verdict::NoDifferenceProven, _) => "no difference proven",
        (_, Some(true)) => "better",
        (_, _) => "worse",
    };
    format!("x {}{interval}: {judgement}{paired}", ratio(comparison.ratio))
}

/// A ratio with three decimals; where those say nothing, only its order.
fn ratio(value: f64) -> String {
    match value {
        value if value < 0.001 => "<0.001".to_owned(),
        value if value > 1000.0 => ">1000".to_owned(),
        value => format!("{value:.3}"),
    }
}
