//! Faults planted in guests are reported, never run for ever.
