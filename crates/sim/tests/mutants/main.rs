//! Tests of the tests: each deliberately broken engine must be found.

mod block;
mod nvram;
