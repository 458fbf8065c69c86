"""Decodes a trace with the definitions that Perfetto publishes, and checks what a reader relies on."""
import collections
import json
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as definitions


def check_known(message):
    assert len(UnknownFieldSet(message)) == 0, f"unknown fields in {message.DESCRIPTOR.full_name}"
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for part in [value] if hasattr(value, "DESCRIPTOR") else value:
            check_known(part)


trace = definitions.Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())
check_known(trace)

Event = definitions.TrackEvent
tracks, names, flows = {}, {}, collections.defaultdict(list)
open_slices, last = collections.defaultdict(list), {}
counts, tops = collections.Counter(), collections.defaultdict(list)
for packet in trace.packet:
    assert packet.trusted_packet_sequence_id != 0
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        assert track.uuid != 0 and track.uuid not in tracks and track.name
        assert track.parent_uuid == 0 or track.parent_uuid in tracks, "parents come first"
        tracks[track.uuid] = track
    for interned in packet.interned_data.event_names:
        assert interned.iid != 0 and interned.iid not in names
        names[interned.iid] = interned.name
    if not packet.HasField("track_event"):
        continue
    event, at = packet.track_event, packet.timestamp
    uuid = event.track_uuid
    counter = tracks[uuid].HasField("counter")
    assert at >= last.get(uuid, 0), "time goes on"
    last[uuid] = at
    counts[Event.Type.Name(event.type)] += 1
    assert counter == (event.type == Event.TYPE_COUNTER)
    if event.type in (Event.TYPE_SLICE_BEGIN, Event.TYPE_INSTANT):
        assert names[event.name_iid]
        assert packet.sequence_flags & definitions.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
    if event.type == Event.TYPE_SLICE_BEGIN:
        open_slices[uuid].append(at)
    if event.type == Event.TYPE_SLICE_END:
        begun = open_slices[uuid].pop()
        assert at > begun, "a slice lasts"
        if not open_slices[uuid]:
            tops[uuid].append((begun, at))
    for flow in event.flow_ids:
        flows[flow].append(False)
    for flow in event.terminating_flow_ids:
        flows[flow].append(True)

assert not any(open_slices.values()), "every slice ends"
for spans in tops.values():
    assert all(one[1] <= other[0] for one, other in zip(spans, spans[1:])), "no overlap"
assert all(len(links) > 1 and not any(links[:-1]) for links in flows.values()), "flows lead somewhere"
print(json.dumps({**counts, "tracks": len(tracks), "flows": len(flows)}))
