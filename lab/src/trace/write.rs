//! Encodes a drawn timeline in Perfetto's trace format.

use std::collections::BTreeMap;

use holdfast_sim::timeline::Timeline;
use prost::Message as _;

use super::picture::{Event, Mark, Track, draw};
use super::proto::{
    ChildOrdering, CounterDescriptor, CounterUnit, DebugAnnotation, EventType, INCREMENTAL_STATE_CLEARED, Interned,
    InternedData, NEEDS_INCREMENTAL_STATE, Trace, TracePacket, TrackDescriptor, TrackEvent,
};

/// The only sequence of the trace.
const SEQUENCE: u32 = 1;
/// Interned name of the annotation that distinguishes locks of one class.
const LOCK_NAME: u64 = 1;

/// Returns the trace as bytes for ui.perfetto.dev. Equal timelines give equal bytes.
pub fn encode(timeline: &Timeline) -> Vec<u8> {
    encode_tracks(&draw(timeline))
}

/// Returns `tracks` as bytes for ui.perfetto.dev. Equal tracks give equal bytes.
pub(crate) fn encode_tracks(tracks: &[Track]) -> Vec<u8> {
    let mut writer = Writer {
        bytes: Vec::new(),
        names: BTreeMap::new(),
    };
    for (index, track) in tracks.iter().enumerate() {
        writer.packet(TracePacket {
            track_descriptor: Some(descriptor(index, track)),
            ..TracePacket::default()
        });
    }
    writer.packet(TracePacket {
        sequence_flags: Some(INCREMENTAL_STATE_CLEARED),
        interned_data: Some(InternedData {
            debug_annotation_names: vec![interned(LOCK_NAME, "lock")],
            ..InternedData::default()
        }),
        ..TracePacket::default()
    });
    let mut order: Vec<(u64, usize, usize, usize)> = Vec::new();
    for (number, track) in tracks.iter().enumerate() {
        let events = track.events.iter().enumerate();
        order.extend(events.map(|(index, event)| (event.at, event.rank, number, index)));
    }
    // Readers sort by time and otherwise keep this order: at the same time, causes come before their effects.
    order.sort_unstable();
    for (.., number, index) in order {
        writer.event(number, &tracks[number].events[index]);
    }
    writer.bytes
}

/// Returns the identifier of a track. The format reserves track 0.
fn uuid(index: usize) -> u64 {
    index as u64 + 1
}

fn interned(iid: u64, name: &str) -> Interned {
    Interned {
        iid: Some(iid),
        name: Some(name.to_owned()),
    }
}

fn descriptor(index: usize, track: &Track) -> TrackDescriptor {
    TrackDescriptor {
        uuid: Some(uuid(index)),
        name: Some(track.name.clone()),
        parent_uuid: track.parent.map(uuid),
        counter: track.counts.then_some(CounterDescriptor {
            unit: Some(CounterUnit::Count as i32),
        }),
        child_ordering: track.parent.is_none().then_some(ChildOrdering::Explicit as i32),
        sibling_order_rank: Some(index as i32),
        description: (!track.description.is_empty()).then(|| track.description.to_owned()),
    }
}

struct Writer {
    bytes: Vec<u8>,
    /// Names that are already written.
    names: BTreeMap<String, u64>,
}

impl Writer {
    /// Appends one packet: a trace is its packets one after another.
    fn packet(&mut self, packet: TracePacket) {
        let packet = TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            ..packet
        };
        let trace = Trace { packet: vec![packet] };
        trace.encode(&mut self.bytes).expect("a vector grows");
    }

    fn event(&mut self, track: usize, event: &Event) {
        let mut new = None;
        let mut made = TrackEvent {
            track_uuid: Some(uuid(track)),
            ..TrackEvent::default()
        };
        let kind = match &event.what {
            Mark::Begin(name, lock) => {
                made.name_iid = Some(self.name(name, &mut new));
                made.debug_annotations.extend(lock.map(|lock| DebugAnnotation {
                    name_iid: Some(LOCK_NAME),
                    uint_value: Some(u64::from(lock)),
                }));
                EventType::SliceBegin
            }
            Mark::End => EventType::SliceEnd,
            Mark::Instant(name, flow) => {
                made.name_iid = Some(self.name(name, &mut new));
                match flow {
                    Some(flow) if flow.ends => made.terminating_flow_ids.push(flow.id),
                    Some(flow) => made.flow_ids.push(flow.id),
                    None => {}
                }
                EventType::Instant
            }
            Mark::Count(value) => {
                made.counter_value = Some(*value);
                EventType::Counter
            }
        };
        made.r#type = Some(kind as i32);
        self.packet(TracePacket {
            timestamp: Some(event.at),
            sequence_flags: Some(NEEDS_INCREMENTAL_STATE),
            interned_data: new.map(|name| InternedData {
                event_names: vec![name],
                ..InternedData::default()
            }),
            track_event: Some(made),
            ..TracePacket::default()
        });
    }

    /// Returns the number of `name`, and sets `new` if the packet must define it.
    fn name(&mut self, name: &str, new: &mut Option<Interned>) -> u64 {
        if let Some(iid) = self.names.get(name) {
            return *iid;
        }
        let iid = self.names.len() as u64 + 1;
        self.names.insert(name.to_owned(), iid);
        *new = Some(interned(iid, name));
        iid
    }
}

#[cfg(test)]
mod tests {
    use holdfast_machine::Time;
    use holdfast_sim::timeline::{Flow, Happening, Moment, Track as Owner, VcpuTimeline};

    use super::*;

    #[test]
    fn causes_stand_before_effects_at_the_same_time() {
        let moment = |vcpu, what, ends| Moment {
            at: Time(7_000),
            track: Owner::Vcpu(vcpu),
            what,
            flow: Some(Flow { id: 9, ends }),
        };
        let vcpu = |number| VcpuTimeline {
            number,
            ..VcpuTimeline::default()
        };
        let timeline = Timeline {
            from: Time(0),
            to: Time(9_000),
            end: Time(9_000),
            begun: vec![None],
            truncated: false,
            vms: vec!["guest".to_owned()],
            tasks: Vec::new(),
            pcpus: Vec::new(),
            vcpus: vec![vcpu(0), vcpu(1)],
            moments: vec![
                moment(1, Happening::Kick(0), false),
                moment(0, Happening::Woken { by: 1, vector: None }, true),
            ],
        };
        let trace = Trace::decode(&*encode(&timeline)).expect("what was encoded");
        let events = trace.packet.iter().filter_map(|packet| packet.track_event.as_ref());
        let links: Vec<(usize, usize)> = events
            .map(|event| (event.flow_ids.len(), event.terminating_flow_ids.len()))
            .filter(|links| *links != (0, 0))
            .collect();
        assert_eq!(links, [(1, 0), (0, 1)]);
    }
}
