//! The locks' conformance suite in virtual time.
