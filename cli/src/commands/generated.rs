//! `holdfast completions` and `holdfast man`: generated from the command line's definition.

use std::path::PathBuf;

use clap::CommandFactory as _;
use holdfast_lab::file;

use crate::Done;
use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::error::{Error, Result};
use crate::output::{self, note};

/// Prints a shell's completions.
pub fn completions(args: &CompletionsArgs) -> Result<Done> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "holdfast", &mut script);
    output::raw(&String::from_utf8_lossy(&script))?;
    Ok(Done::Whole)
}

/// Writes a manual page for each command.
pub fn man(args: &ManArgs) -> Result<Done> {
    // Completes the commands' names: "holdfast-run", not "run".
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut commands = vec![root];
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned());
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        let path: PathBuf = args.folder.join(format!("{name}.1"));
        let mut page = Vec::new();
        clap_mangen::Man::new(command)
            .render(&mut page)
            .map_err(Error::of("cannot write a manual page"))?;
        output::check(Some(&path))?;
        file::write(&path, &page)?;
        note!("manual page: {}", path.display());
    }
    Ok(Done::Whole)
}
