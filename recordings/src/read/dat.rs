//! trace.dat, by the crate `holdfast-trace-dat`.

use std::collections::VecDeque;
use std::io::{BufReader, SeekFrom};

use holdfast_trace_dat::{Error, ErrorKind, File, Missed, Records};

use crate::event::{Event, Name, What};

use super::decode::Decoder;
use super::recording::{Fault, Format, GuestThreads, Header, Input, ReadError, Recording, Source};

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        let fault = match error.kind {
            ErrorKind::Io(error) => Fault::Io(error),
            ErrorKind::Foreign => Fault::Foreign("no trace.dat"),
            ErrorKind::Unsupported(what) => Fault::Unsupported(what),
            ErrorKind::Truncated(what) => Fault::Truncated(what),
            ErrorKind::Damaged(what) => Fault::Damaged(what),
            other => Fault::Damaged(format!("{other:?}")),
        };
        Self::new(error.offset, fault)
    }
}

struct Dat<R> {
    records: Records<R>,
    decoder: Decoder,
    /// What is said with the time of the first event.
    names: VecDeque<What>,
    ready: VecDeque<Result<(Event, u64), ReadError>>,
}

pub(super) fn read(input: BufReader<impl Input + 'static>) -> Result<Recording, ReadError> {
    let mut input = input.into_inner();
    input
        .seek(SeekFrom::Start(0))
        .map_err(|error| ReadError::new(0, Fault::Io(error)))?;
    let file = File::open(input)?;
    let mut header = Header::new(Format::TraceCmd);
    // `Linux NAME RELEASE MACHINE`: the name of a machine has no space.
    if let Some(uname) = &file.uname {
        let mut words = uname.split_whitespace().skip(2);
        header.kernel = words.next().map(str::to_owned);
        header.machine = words.next().map(str::to_owned);
    }
    let clock = file.buffers.first().and_then(|buffer| buffer.clock.clone());
    header.clock = clock.or_else(|| file.clock.clone());
    header.cpus = file.cpus;
    // trace-cmd stores the formats of the events that it records. Those of ftrace are always there.
    let recorded = file.formats.iter().filter(|format| format.system != "ftrace");
    header.tracepoints = Some(
        recorded
            .map(|format| format!("{}:{}", format.system, format.name))
            .collect(),
    );
    header.guests = file
        .guests
        .iter()
        .map(|guest| GuestThreads {
            name: guest.name.clone(),
            id: guest.id,
            vcpus: guest.vcpus.clone(),
        })
        .collect();
    header.id = file.id;
    header.clock_of = file.time_shift.as_ref().map(|shift| shift.peer);
    let (decoder, wrong) = Decoder::new(&file.formats);
    let mut ready: VecDeque<_> = VecDeque::new();
    for wrong in wrong {
        ready.push_back(Err(ReadError::new(0, Fault::Unsupported(wrong))));
    }
    if let Some(clock) = header
        .clock
        .as_deref()
        .filter(|&clock| !is_time(clock, file.tsc.is_some()))
    {
        return Err(ReadError::new(
            0,
            Fault::Unsupported(format!("the clock `{clock}`, which counts no time,")),
        ));
    }
    let names = file.cmdlines.iter().map(|(&named, name)| What::Named {
        named,
        process: None,
        name: Name::from(&**name),
    });
    let names = names.collect();
    let records = Records::new(file);
    Ok(Recording::new(
        header,
        Dat {
            records,
            decoder,
            names,
            ready,
        },
    ))
}

/// Whether a clock of tracefs counts ns, or cycles that can be converted.
fn is_time(clock: &str, with_tsc_scale: bool) -> bool {
    match clock {
        "counter" | "uptime" => false,
        "x86-tsc" | "tsc" | "ppc-tb" => with_tsc_scale,
        _ => true,
    }
}

impl<R: Input> Source for Dat<R> {
    fn next(&mut self) -> Option<Result<(Event, u64), ReadError>> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            let record = match self.records.next()? {
                Ok(record) => record,
                Err(error) => return Some(Err(error.into())),
            };
            let what = self.decoder.read(record.data);
            if matches!(what, Ok(None)) && record.missed.is_none() && self.names.is_empty() {
                continue;
            }
            let mut event = Event {
                at: record.at,
                cpu: record.cpu,
                thread: self.decoder.thread(record.data),
                what: What::Lost { events: None },
            };
            let offset = record.offset;
            for what in self.names.drain(..) {
                self.ready.push_back(Ok((Event { what, ..event }, offset)));
            }
            if let Some(Missed { events }) = record.missed {
                let what = What::Lost { events };
                self.ready.push_back(Ok((Event { what, ..event }, offset)));
            }
            match what {
                Ok(None) => continue,
                Ok(Some(what)) => event.what = what,
                Err(undecoded) => {
                    self.ready
                        .push_back(Err(ReadError::new(offset, Fault::Damaged(undecoded.0))));
                    continue;
                }
            }
            if self.ready.is_empty() {
                return Some(Ok((event, offset)));
            }
            self.ready.push_back(Ok((event, offset)));
        }
    }
}
