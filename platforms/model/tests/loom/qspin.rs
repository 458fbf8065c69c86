//! Queued spinlock, in both layouts of its word.

mod narrow {
    use holdfast_locks::Qspin;

    use crate::loom::{ALL, few};

    suite! { "qspin", Qspin:
        two_cpus = ALL,
        two_cpus_twice = few(4),
        three_cpus = few(3),
        four_cpus = few(0),
        try_lock = ALL,
        freed_at_once = ALL,
        interrupted_waiter = ALL,
    }
}

mod wide {
    use holdfast_locks::{Qspin, Wide};

    use crate::loom::{ALL, few};

    suite! { "qspin (wide)", Qspin<Wide>:
        two_cpus = ALL,
        two_cpus_twice = few(4),
        three_cpus = few(3),
    }
}
