use super::*;

#[test]
fn only_what_another_attempt_cannot_change_is_lasting() {
    let vm = || "vm1".to_owned();
    let state = |booting| {
        Box::new(GuestState {
            booting,
            ..GuestState::default()
        })
    };
    let host = |code| Error::host("run", io::Error::from_raw_os_error(code));
    let exit = || "input from port 0x60".to_owned();
    let lasting = [
        Error::NoKvm,
        host(libc::EINVAL),
        Error::Refused {
            vm: vm(),
            why: exit(),
            state: state(false),
        },
        Error::TripleFault {
            vm: vm(),
            state: state(true),
        },
        Error::UnexpectedExit {
            vm: vm(),
            exit: exit(),
            state: state(true),
        },
    ];
    let passing = [
        host(libc::ENOMEM),
        Error::host("map memory", io::Error::other("no code")),
        Error::TripleFault {
            vm: vm(),
            state: state(false),
        },
        Error::UnexpectedExit {
            vm: vm(),
            exit: exit(),
            state: state(false),
        },
        Error::Hang {
            limit: Duration::from_secs(1),
            states: Vec::new(),
        },
        Error::CalledOff,
    ];
    assert!(lasting.iter().all(Error::is_lasting), "{lasting:?}");
    assert!(!passing.iter().any(Error::is_lasting), "{passing:?}");
}
