//! `holdfast new`.

use std::io::{self, IsTerminal as _};
use std::path::Path;

use holdfast_lab::file;
use holdfast_lab::template::{self, Answers, NewGuest, Question};

use crate::Done;
use crate::args::NewArgs;
use crate::error::{Error, Result};
use crate::output::{self, note, say};
use crate::refused::Refused;

/// Writes a new experiment file.
pub fn new(args: &NewArgs) -> Result<Done> {
    let path = Path::new(&args.file);
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if path.extension().is_none_or(|extension| extension != "toml") {
        return Err(Refused::instead(format!("{:?}", args.file), "a file that ends in .toml").into());
    }
    if path.exists() && !args.force {
        let found = format!("{:?}, which is there already", args.file);
        return Err(Refused::instead(found, "a new file, or --force").into());
    }
    output::check(Some(path))?;
    let mut answers = Answers::example(name);
    if let Some(kernel) = &args.kernel {
        answers.kernel = *kernel;
    }
    if let Some(file) = &args.topology {
        // Relative to the new file, as the file itself is read.
        answers.host = Ok(file.clone());
    } else if args.sockets.is_some() || args.cores.is_some() || args.threads.is_some() {
        let [sockets, cores, threads] = [(args.sockets, 1), (args.cores, 8), (args.threads, 2)].map(or_default);
        answers.host = Err([sockets, cores, threads]);
    }
    if !args.guests.is_empty() {
        answers.guests.clone_from(&args.guests);
    }
    answers.question = args.question.unwrap_or_default();
    let asks = !args.is_answered() && io::stdin().is_terminal() && io::stderr().is_terminal();
    if asks {
        ask(&mut answers)?;
    }
    file::write(path, template::text(&answers).as_bytes())?;
    note!(
        "experiment: {} (next: holdfast run {} --out results)",
        args.file,
        args.file
    );
    Ok(Done::Whole)
}

fn or_default((given, default): (Option<u32>, u32)) -> u32 {
    given.unwrap_or(default)
}

/// Asks what no option has said. An empty answer keeps the default.
fn ask(answers: &mut Answers) -> Result<()> {
    if let Some(kernel) = answer("Linux of the host and its guests", answers.kernel.name(), |text| {
        let expected = || format!("one of {}", Answers::kernels().collect::<Vec<_>>().join(", "));
        NewArgs::version(text).map_err(|_| expected())
    })? {
        answers.kernel = kernel;
    }
    let host = "file with `lscpu -p` of the host, or SOCKETS CORES THREADS";
    if let Some(host) = answer(host, "1 8 2", |text| Ok(read_host(text)))? {
        answers.host = host;
    }
    let shown = answers.guests.iter().map(|guest| {
        let NewGuest {
            name,
            workload,
            vcpus,
            count,
        } = guest;
        format!("{name}:{workload}:{vcpus}:{count}")
    });
    let shown = shown.collect::<Vec<_>>().join(" ");
    if let Some(guests) = answer("guests, the one that matters first", &shown, |text| {
        text.split_whitespace()
            .map(NewGuest::parse)
            .collect::<std::result::Result<Vec<_>, _>>()
    })? {
        answers.guests = guests;
    }
    for question in Question::ALL {
        say!("  {}: {}", question.name(), question.about());
    }
    if let Some(question) = answer("question", answers.question.name(), |text| {
        let found = Question::ALL.into_iter().find(|question| question.name() == text);
        found.ok_or_else(|| "one of pin, weight, quota, host".to_owned())
    })? {
        answers.question = question;
    }
    Ok(())
}

/// Reads three numbers, or the name of a file.
fn read_host(text: &str) -> std::result::Result<String, [u32; 3]> {
    let numbers: Vec<u32> = text
        .split_whitespace()
        .filter_map(|number| number.parse().ok())
        .collect();
    match numbers[..] {
        [sockets, cores, threads] if sockets > 0 && cores > 0 && threads > 0 => Err([sockets, cores, threads]),
        _ => Ok(text.to_owned()),
    }
}

/// Asks until `read` accepts the answer. Returns `None` for the default.
fn answer<T>(what: &str, default: &str, read: impl Fn(&str) -> std::result::Result<T, String>) -> Result<Option<T>> {
    loop {
        say!("{what} [{default}]:");
        let mut text = String::new();
        io::stdin()
            .read_line(&mut text)
            .map_err(Error::of("cannot read the answer"))?;
        match text.trim() {
            "" => return Ok(None),
            text => match read(text) {
                Ok(value) => return Ok(Some(value)),
                Err(expected) => say!("found {text:?}, {expected}"),
            },
        }
    }
}
