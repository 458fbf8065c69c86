//! Is a search any good? Faults are planted, one at a time, and must be found.

mod orderings;
