//! Tests of reading recordings.

mod text;
