//! How somebody begins: the demo, `init`, `adopt`.

mod demo;
mod init;
