//! Tests of reading recordings.

mod damage;
mod dat;
mod fuzz;
mod perf;
mod stream;
mod testhost;
mod text;
