//! The terminal front: the protocol of `attach.sock`, the chat in a real terminal, `pointer watch`.

mod protocol;
mod screen;
pub(crate) mod tmux;
mod watch;
