//! What a file is that was taken for results, and is none.

use crate::document;
use crate::shipped::{is_experiment, is_machine};

/// What else a document of ours with this schema, a JSON value, may be.
pub(crate) fn made_by(schema: &str) -> &'static str {
    let name = schema.trim_matches('"').split('/').next();
    match name.unwrap_or_default() {
        "holdfast.reality" => {
            " (of `holdfast validate threads` or `kvm`: rates of this machine beside predicted ones; where the time \
             of its threads went it could not know)"
        }
        "holdfast.bench" => " (of `holdfast bench`)",
        "holdfast.calibration" => " (of `holdfast calibrate`)",
        "holdfast.doctor" => " (of `holdfast kvm doctor`)",
        "holdfast.explanation" => " (of `holdfast explain`, which needs the results themselves)",
        "holdfast.comparison" => " (of `holdfast compare`, which needs the results themselves)",
        "holdfast.validation" => " (of `holdfast validate`, whose results --out DIR keeps)",
        "holdfast.trace" => " (of `holdfast trace`)",
        "holdfast.list" => " (of `holdfast list`)",
        _ => "",
    }
}

/// Returns what a `text` that is no JSON object is.
pub(crate) fn kind_of(text: &str) -> &'static str {
    match document::parse("", text) {
        Ok(table) if is_machine(&table) => "a machine profile",
        Ok(table) if is_experiment(&table) => "an experiment, which `holdfast run` runs",
        Ok(_) => "a TOML file",
        Err(_) if text.trim_start().starts_with('<') => "a page, perhaps one of `holdfast report`",
        Err(_) => "some other text",
    }
}
