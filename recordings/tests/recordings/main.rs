//! Tests of reading recordings.

mod dat;
mod text;
