//! Tests of the emulator through its public API.

mod support;

mod counters;
mod divergence;
mod faults;
mod foreign;
mod host;
mod instructions;
mod loading;
mod matrices;
mod random_flow;
mod random_races;
