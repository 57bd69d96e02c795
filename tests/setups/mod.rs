//! Setups in which `claude` is not ours: a pane, a unit, a loop of one's own.

mod manager;
mod pane;
mod systemd;
mod tmux;
