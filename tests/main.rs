//! The one integration test binary: every suite is a module of it.

#![expect(
    unreachable_pub,
    reason = "helpers are written as a library would be, and nothing outside sees a test binary"
)]

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod offline;
#[cfg(test)]
mod stub_suite;
#[cfg(test)]
mod stubs;
#[cfg(test)]
mod support;
