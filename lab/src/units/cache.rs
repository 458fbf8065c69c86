//! A folder with the records of finished units, one file for each.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use super::{Id, Record};
use crate::diagnostic::{Place, Problem};
use crate::file::{self, WriteError};

/// A folder with the records of finished units, as `FOLDER/3f/3f2a…/17.json` for the seed 17. Any number of processes
/// can read and write it at the same time, on several machines.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// Opens the cache in `folder`, which is created if it is missing.
    ///
    /// # Errors
    /// If no file can be created in the folder.
    pub fn open(folder: &Path) -> Result<Cache, WriteError> {
        let open = || {
            fs::create_dir_all(folder)?;
            tempfile::NamedTempFile::new_in(folder).map(drop)
        };
        open().map_err(WriteError::of(folder))?;
        Ok(Cache {
            folder: folder.to_owned(),
        })
    }

    /// Returns the cache in the existing `folder`, for reading.
    pub fn at(folder: &Path) -> Cache {
        Cache {
            folder: folder.to_owned(),
        }
    }

    /// Returns the folder of the cell of `id`.
    fn cell(&self, id: Id) -> PathBuf {
        let cell = format!("{:032x}", id.cell);
        self.folder.join(&cell[..2]).join(cell)
    }

    /// Returns the file of `id`.
    pub fn path(&self, id: Id) -> PathBuf {
        self.cell(id).join(format!("{}.json", id.seed))
    }

    /// Returns whether there is a file of `id`.
    pub fn has(&self, id: Id) -> bool {
        self.path(id).is_file()
    }

    /// Returns the record of `id`, or `None` if there is none.
    ///
    /// # Errors
    /// If the file cannot be read, or is no whole record of this unit.
    pub fn get(&self, id: Id) -> Result<Option<Record>, Problem> {
        let path = self.path(id);
        let problem =
            |found: String, expected: String| Problem::new(&Place::whole(&path.to_string_lossy()), found, expected);
        let text = match file::read_text(&path, file::BYTES_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(problem(format!("an error ({error})"), "a record".to_owned())),
        };
        let record =
            Record::parse(text.trim_end_matches('\n')).map_err(|(found, expected)| problem(found, expected))?;
        if record.id != id {
            return Err(problem(
                format!("a record of the unit {}", record.id),
                format!("the unit {id}"),
            ));
        }
        Ok(Some(record))
    }

    /// Adds `record`. Of two writers of one unit the last one wins, and both have the same outcome.
    ///
    /// # Errors
    /// If the file cannot be written. An existing record is unchanged then.
    pub fn put(&self, record: &Record) -> Result<(), WriteError> {
        let path = self.path(record.id);
        let put = || -> io::Result<()> {
            let folder = self.cell(record.id);
            fs::create_dir_all(&folder)?;
            // The name of a temporary file is random, so no two writers have the same. What a crash leaves behind is
            // never read. A record that a power failure cut off does not match its checksum, and its unit is run again.
            let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(&folder)?;
            file.write_all(record.line().as_bytes())?;
            file.persist(&path).map_err(|error| error.error)?;
            Ok(())
        };
        put().map_err(WriteError::of(&path))
    }

    /// Returns the mean CPU time in seconds of those units of the cell of `id` that are in the cache, or `None` without
    /// any. At most a few records are read.
    pub fn predicted_s(&self, id: Id) -> Option<f64> {
        const SAMPLES: usize = 5;
        let seeds = fs::read_dir(self.cell(id)).ok()?.filter_map(|entry| {
            let name = entry.ok()?.file_name();
            name.to_str()?.strip_suffix(".json")?.parse().ok()
        });
        let mut seeds: Vec<u64> = seeds.collect();
        seeds.sort_unstable();
        let records = seeds.into_iter().filter_map(|seed| self.get(Id { seed, ..id }).ok()?);
        let costs = records.map(|record| record.cost.cpu_s.unwrap_or(record.cost.wall_s));
        let costs: Vec<f64> = costs.take(SAMPLES).collect();
        (!costs.is_empty()).then(|| costs.iter().sum::<f64>() / costs.len() as f64)
    }
}
