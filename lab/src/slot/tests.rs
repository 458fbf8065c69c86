//! Values are read as they are shown.

use super::read::cpus;
use super::*;
use crate::document::Node;

impl Slot<'_> {
    /// Changes the value. Returns `false` for a choice, which can change other parameters too.
    pub fn alter(self) -> bool {
        match self {
            Slot::Flag(value) => *value = !*value,
            Slot::OptionalFlag(value) => *value = Some(!value.unwrap_or_default()),
            Slot::U32(value) => *value += 1,
            Slot::U64(value) | Slot::Nanos(value) | Slot::Hertz(value) => *value += 1,
            Slot::NanosOrNever(value) => *value = 7,
            Slot::I8(value) => *value += 1,
            Slot::OptionalU32(value) => *value = Some(value.unwrap_or_default() + 1),
            Slot::OptionalNanos(value) => *value = Some(value.unwrap_or_default() + 1),
            Slot::F64(value) => *value += 1.0,
            Slot::Text(value) => value.push('x'),
            Slot::Group(value) | Slot::Guest(value) => *value = Some("other".to_owned()),
            Slot::Amount(value) => *value = Amount::from_nanos(123_456),
            Slot::Affinity(value) => *value = Affinity::Same(vec![1, 2]),
            Slot::Cpus(value) => *value = vec![1, 2],
            Slot::Nodes(value) => *value = VirtualNodes::Pinned,
            Slot::Inhibits(value) => value.set(Inhibit::Sev, true),
            Slot::CpuMax(_) | Slot::Weight(_) => return false,
            Slot::Choice(_) | Slot::Lock(..) | Slot::Policy(..) | Slot::GuestPolicy(..) | Slot::Workload(..) => {
                return false;
            }
            Slot::Name(_) => return false,
        }
        true
    }
}

#[test]
fn cpu_lists_read_as_the_kernel_writes_them() {
    let read = |text: &str| cpus(&Value::Text(text.to_owned()));
    assert_eq!(read("0-2,5"), Some(vec![0, 1, 2, 5]));
    assert_eq!(read("3"), Some(vec![3]));
    for wrong in ["", "a", "2-1", "0-", "-1", "0-99999999"] {
        assert_eq!(read(wrong), None, "{wrong}");
    }
}

#[test]
fn out_of_range_is_refused_and_changes_nothing() {
    let mut value = 7_u32;
    let refused = Slot::U32(&mut value).set(&Value::Integer(300), (1.0, 254.0));
    assert_eq!(refused, Err("a whole number from 1 to 254".to_owned()));
    assert_eq!(value, 7);
}

#[test]
fn inhibit_reasons_are_read_as_they_are_shown() {
    let node = |value| Node {
        value,
        place: crate::diagnostic::Place::new(&"a.toml".into(), 1),
    };
    for bits in 0_u32..1 << Inhibit::ALL.len() {
        let (mut shown, mut found) = (Inhibits::NONE, Inhibits::NONE);
        for reason in Inhibit::ALL {
            shown.set(reason, bits >> reason as u8 & 1 == 1);
        }
        let names = shown
            .reasons()
            .map(|reason| node(Value::Text(reason.name().to_owned())));
        let value = Value::Array(names.collect());
        assert_eq!(Slot::Inhibits(&mut found).set(&value, (0.0, 0.0)), Ok(()));
        assert_eq!(found, shown);
        assert_eq!(
            Slot::Inhibits(&mut found).show().matches('"').count(),
            2 * bits.count_ones() as usize
        );
    }
    let mut reasons = Inhibits::NONE;
    let unknown = Value::Array(vec![node(Value::Text("pit_rein".to_owned()))]);
    let refused = Slot::Inhibits(&mut reasons).set(&unknown, (0.0, 0.0));
    assert!(refused.is_err_and(|expected| expected.contains("pit_reinj")));
    for wrong in [
        Value::Text("sev,".to_owned()),
        Value::Array(vec![node(Value::Integer(3))]),
    ] {
        assert!(Slot::Inhibits(&mut reasons).set(&wrong, (0.0, 0.0)).is_err());
    }
    assert_eq!(reasons, Inhibits::NONE);
    let listed = Value::Text("pit_reinj, sev".to_owned());
    assert_eq!(Slot::Inhibits(&mut reasons).set(&listed, (0.0, 0.0)), Ok(()));
    assert_eq!(Slot::Inhibits(&mut reasons).show(), "[\"pit_reinj\", \"sev\"]");
}
