//! A window of a recording for ui.perfetto.dev.

use holdfast_recordings::picture::{Picture, VcpuPicture};

use crate::trace::{Event, Mark, Track, encode_tracks};

/// Returns `picture` as bytes for ui.perfetto.dev.
pub fn perfetto(picture: &Picture) -> Vec<u8> {
    let mut tracks = vec![Track {
        name: "pCPUs".to_owned(),
        description: "Who has each physical CPU.",
        ..Track::default()
    }];
    for cpu in &picture.cpus {
        let spans = cpu.spans.iter();
        let named = spans.filter_map(|span| Some((span.from, span.to, span.what.clone()?)));
        tracks.push(Track {
            name: format!("pCPU {}", cpu.cpu),
            parent: Some(0),
            events: slices(named).collect(),
            ..Track::default()
        });
    }
    let mut vm: Option<(&str, usize)> = None;
    for vcpu in &picture.vcpus {
        let parent = match vm {
            Some((name, track)) if name == vcpu.vm => track,
            _ => {
                tracks.push(Track {
                    name: vcpu.vm.clone(),
                    description: "What each vCPU does, and on which pCPU.",
                    ..Track::default()
                });
                tracks.len() - 1
            }
        };
        vm = Some((&vcpu.vm, parent));
        tracks.push(Track {
            name: vcpu.name.clone(),
            parent: Some(parent),
            events: events(vcpu),
            ..Track::default()
        });
    }
    encode_tracks(&tracks)
}

/// Returns the begins and ends of `spans`, which do not overlap.
fn slices(spans: impl Iterator<Item = (u64, u64, String)>) -> impl Iterator<Item = Event> {
    spans.flat_map(|(from, to, name)| {
        let event = |at, what| Event { at, rank: 0, what };
        [event(from, Mark::Begin(name, None)), event(to, Mark::End)]
    })
}

fn events(vcpu: &VcpuPicture) -> Vec<Event> {
    let spans = vcpu.spans.iter().map(|span| {
        let (state, cpu) = span.what;
        let place = cpu.filter(|_| state.has_pcpu()).map(|cpu| format!(" on pCPU {cpu}"));
        (
            span.from,
            span.to,
            format!("{}{}", state.name(), place.unwrap_or_default()),
        )
    });
    let mut events: Vec<Event> = slices(spans).collect();
    events.extend(vcpu.moments.iter().map(|(at, what)| Event {
        at: *at,
        rank: 1,
        what: Mark::Instant(what.clone(), None),
    }));
    events
}
