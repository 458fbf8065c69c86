//! Recordings of guests on a real KVM, in the test host (`tests/files/README.md`).

use std::collections::BTreeMap;
use std::io::Cursor;

use holdfast_recordings::event::{Event, Left, What};
use holdfast_recordings::read::read;

const V6: &[u8] = include_bytes!("../files/6.1-trace-cmd.v6.dat");
const V7: &[u8] = include_bytes!("../files/6.1-trace-cmd.v7.dat");
const TEXT: &[u8] = include_bytes!("../files/6.1-trace-cmd.txt");

fn events(bytes: &[u8]) -> Vec<Event> {
    let recording = read(Cursor::new(bytes.to_vec())).expect("a recording");
    recording.map(|event| event.expect("no damage")).collect()
}

#[test]
fn both_versions_of_a_recording_are_one_recording() {
    let (old, new) = (events(V6), events(V7));
    assert!(new.len() > 300, "{} events", new.len());
    assert_eq!(old, new);
}

#[test]
fn the_text_has_the_moves_of_threads() {
    let moves = |bytes| {
        let is_move = |event: &Event| {
            matches!(
                event.what,
                What::Switch { .. } | What::Waking { .. } | What::Migrate { .. }
            )
        };
        events(bytes).into_iter().filter(is_move).collect::<Vec<_>>()
    };
    assert_eq!(moves(TEXT), moves(V7));
}

#[test]
fn threads_that_enter_a_guest_switch_consistently() {
    let (mut last, mut entries) = (BTreeMap::new(), BTreeMap::new());
    for event in events(V7) {
        match event.what {
            What::Switch { prev, next, left, .. } => {
                if let Some(before) = last.insert(event.cpu, next) {
                    assert_eq!(before, prev, "at {}", event.at);
                }
                assert!(left != Left::Dead || prev != 0);
            }
            What::Entry { vcpu, .. } => {
                if let Some(running) = last.get(&event.cpu) {
                    assert_eq!(*running, event.thread, "at {}", event.at);
                }
                assert_eq!(*entries.entry(event.thread).or_insert(vcpu), vcpu);
            }
            _ => {}
        }
    }
    assert!(entries.len() >= 6, "{entries:?}");
}
