//! The one integration test binary: every suite is a module of it.

#[cfg(test)]
mod chat;
#[cfg(test)]
mod companion;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod offline;
#[cfg(test)]
mod outcomes;
#[cfg(test)]
mod rebuilt;
#[cfg(test)]
mod setups;
#[cfg(test)]
mod start;
#[cfg(test)]
mod stub_suite;
#[cfg(test)]
mod stubs;
#[cfg(test)]
mod support;
