//! Nothing but a target for the root package: its tests are in `tests/`, its benches in `benches/`.
