//! Tests of reading recordings.

mod damage;
mod dat;
mod perf;
mod text;
