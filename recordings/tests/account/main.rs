//! Timelines and accounts of recordings that are written by hand or at random.

mod any_events;
mod beside;
mod host;
mod rules;
