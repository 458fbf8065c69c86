//! Arguments that choose a part of results.

use clap::Args;
use holdfast_lab::filter::Filter;

/// The part of a result file that is shown. Each name is one, or the beginning of several.
#[derive(Args, Debug)]
pub struct FilterArgs {
    /// Show only this case, with each of its swept values; can be given several times
    #[arg(long, value_name = "NAME")]
    pub case: Vec<String>,
    /// Show only this variant; can be given several times
    #[arg(long, value_name = "NAME")]
    pub variant: Vec<String>,
    /// Show only this guest, or identical guests by their common name; can be given several times
    #[arg(long, value_name = "NAME")]
    pub guest: Vec<String>,
}

impl FilterArgs {
    /// Returns the filter that stands for these arguments.
    pub fn filter(&self) -> Filter {
        Filter {
            cases: self.case.clone(),
            variants: self.variant.clone(),
            guests: self.guest.clone(),
        }
    }
}
