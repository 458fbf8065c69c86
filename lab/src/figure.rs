//! What was measured, with identical guests together.

use std::collections::HashMap;

use crate::results::{Case, Results, Total};
use crate::stats::{Center, Samples};

/// What was measured in one cell: a guest, or identical guests together.
#[derive(Clone, Copy, Debug)]
pub struct Figure<'r> {
    /// The guest, or the first of identical ones.
    pub case: &'r Case,
    /// All of the identical guests.
    total: Option<&'r Total>,
}

impl<'r> Figure<'r> {
    /// Returns the name of the guest or of the guests.
    pub fn vm(&self) -> String {
        match self.total {
            Some(total) => format!("{} x {}", total.guests, total.vm),
            None => self.case.vm.clone(),
        }
    }

    /// Returns the samples with their seeds.
    pub fn samples(&self) -> Samples<'r> {
        let samples = self.case.samples();
        match self.total {
            Some(total) => Samples {
                values: &total.samples,
                ..samples
            },
            None => samples,
        }
    }

    /// Returns the geometric mean of the samples with its interval.
    pub fn center(&self) -> Option<Center> {
        Center::of(self.samples().values)
    }
}

/// Returns what was measured in all cells. Identical guests are together.
pub fn figures(results: &Results) -> Vec<Figure<'_>> {
    let totals: HashMap<(&str, &str, &str), &Total> = results
        .totals
        .iter()
        .map(|total| ((&*total.case, &*total.variant, &*total.vm), total))
        .collect();
    let figure = |case: &'_ Case| -> Option<(Option<&Total>, bool)> {
        let member = case.vm.rsplit_once('-').and_then(|(family, number)| {
            let total = totals.get(&(&*case.case, &*case.variant, family))?;
            let number: usize = number.parse().ok()?;
            (1..=total.guests).contains(&number).then_some((*total, number))
        });
        match member {
            None => Some((None, true)),
            Some((total, number)) => Some((Some(total), number == 1)),
        }
    };
    let all = results.cases.iter().filter_map(|case| {
        let (total, first) = figure(case)?;
        first.then_some(Figure { case, total })
    });
    all.collect()
}
