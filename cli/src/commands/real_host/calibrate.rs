//! `holdfast calibrate`.

use std::path::Path;
use std::sync::Arc;

use holdfast_lab::file;
use holdfast_lab::profile::MachineProfile;
use holdfast_lab::shipped::{self, MACHINES};
use holdfast_real_host::calibrate::{self, CalibrateError, Calibration, Settings};

use super::worker;
use crate::Done;
use crate::args::{CalibrateArgs, Format};
use crate::error::{Error, Result};
use crate::experiment::text_of;
use crate::output::{self, say};
use crate::progress::Bar;
use crate::refused::{Refused, Skipped};

/// Measures this machine's parameters and writes them as a profile.
pub fn calibrate(args: &CalibrateArgs) -> Result<Done> {
    let base = profile(&args.base)?;
    let place = args.out.as_deref();
    if let Some(place) = place.filter(|place| place.extension().is_some_and(|extension| extension != "toml")) {
        let found = format!("{:?}", place.display().to_string());
        return Err(Refused::instead(found, "--out to end in .toml, as machine profiles do").into());
    }
    let path = place.map(|place| file::placed(place, Path::new("calibrated.toml")));
    output::check(path.as_deref())?;
    let settings = Settings {
        samples: args.samples,
        guests: args.kvm,
        ..Settings::default()
    };
    if args.kvm {
        super::kvm::usable("calibrate --kvm")?;
    }
    let Some(calibration) = run(&settings, &base)? else {
        return Ok(Done::Interrupted);
    };
    let noise = &calibration.noise;
    if noise.is_useless() && !args.force {
        return Err(Error::Failed(format!(
            "the machine is too noisy to be calibrated: a busy thread lost {:.0} % of its time, with gaps of up to {:.1} ms; stop \
             other programs, or give --force",
            noise.lost * 100.0,
            noise.longest_ns as f64 / 1e6
        )));
    }
    let text = calibrate::to_toml(&calibration);
    if let Some(path) = &path {
        file::write(path, text.as_bytes())?;
        say!("{}", path.display());
    }
    match args.format {
        Format::Json => output::json(&calibration)?,
        Format::Table => {
            show(&calibration)?;
            if args.out.is_none() {
                output::line(&format!("\n{text}"))?;
            }
        }
    }
    Ok(Done::Whole)
}

/// Returns the machine profile called `name`: a shipped profile, or a file.
pub fn profile(name: &str) -> Result<MachineProfile> {
    if let Some(shipped) = shipped::find(MACHINES, name) {
        return Ok(MachineProfile::parse(shipped.file, shipped.text)?);
    }
    Ok(MachineProfile::parse(name, &text_of(name, MACHINES)?)?)
}

/// Measures, with progress. Returns `None` if it was called off: a partial calibration is useless, since each figure
/// needs those before it.
pub fn run(settings: &Settings, base: &MachineProfile) -> Result<Option<Calibration>> {
    let (settings, base) = (*settings, base.clone());
    let bar = Arc::new(Bar::uncounted("calibrating"));
    let shown = Arc::clone(&bar);
    let calibration = worker::run(move |call_off| {
        calibrate::calibrate(&settings, &base, &mut |what| {
            shown.at(0, 0, what);
            worker::check(call_off)
        })
    })?;
    bar.finish();
    match calibration {
        Some(Ok(calibration)) => {
            warn(&calibration);
            Ok(Some(calibration))
        }
        None | Some(Err(CalibrateError::CalledOff)) => {
            say!("incomplete: interrupted before all costs were measured; a partial calibration is not kept");
            Ok(None)
        }
        Some(Err(lack @ CalibrateError::OneCpu)) => Err(Skipped {
            what: "calibration".to_owned(),
            lack: lack.to_string(),
        }
        .into()),
        // Where KVM opens, but does not run these guests, this machine lacks it.
        Some(Err(CalibrateError::Guests { what, why })) => {
            Err(Skipped::guests("calibrate --kvm", &format!("{what}: {why}")).into())
        }
        Some(Err(error)) => Err(error.into()),
    }
}

fn warn(calibration: &Calibration) {
    let noise = &calibration.noise;
    if noise.is_noisy() {
        say!(
            "warning: the machine is noisy: a busy thread lost {:.1} % of its time, with gaps of up to {:.1} ms",
            noise.lost * 100.0,
            noise.longest_ns as f64 / 1e6
        );
    }
    if !calibration.host.hz_known {
        say!(
            "warning: the kernel does not report its tick; {} Hz is assumed",
            calibration.host.hz
        );
    }
}

/// Prints the figures, without the profile's text.
pub fn show(calibration: &Calibration) -> Result<()> {
    let mut table = output::table("cost | ns | quartiles of the samples, ns | how".split(" | "), 1);
    for parameter in &calibration.parameters {
        let samples = &parameter.samples;
        table.add_row([
            parameter.name.to_owned(),
            output::number(parameter.ns),
            format!(
                "{} - {}",
                output::number(samples.quarter_ns),
                output::number(samples.three_quarters_ns)
            ),
            parameter.how.clone(),
        ]);
    }
    output::line(&table.to_string())?;
    let mut table = output::table("benchmark | here, ns | simulated, ns | ratio".split(" | "), 1);
    for closure in &calibration.closure {
        table.add_row([
            closure.benchmark.to_owned(),
            output::number(closure.measured_ns),
            output::optional(closure.simulated_ns),
            output::optional(closure.simulated_ns.map(|ns| ns / closure.measured_ns)),
        ]);
    }
    output::line(&format!("\n{table}"))?;
    let host = &calibration.host;
    let slice = host.measured_slice.map_or_else(
        || "not measured".to_owned(),
        |slice| {
            format!(
                "{:.2} ms (middle half {:.2} to {:.2})",
                slice.median_ns / 1e6,
                slice.quarter_ns / 1e6,
                slice.three_quarters_ns / 1e6
            )
        },
    );
    output::line(&format!(
        "\nnoise: {:.2} % lost, longest gap {:.2} ms; scheduler {} at {} Hz, a slice as measured: {slice}\ncopied from {}: {}",
        calibration.noise.lost * 100.0,
        calibration.noise.longest_ns as f64 / 1e6,
        host.scheduler,
        host.hz,
        calibration.base,
        calibration.copied.join(", ")
    ))?;
    output::line("use it with `holdfast run --set machine.profile=FILE` and:")?;
    for setting in &calibration.settings {
        output::line(&format!("  --set \"{setting}\""))?;
    }
    Ok(())
}
