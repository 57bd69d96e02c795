//! The chat in a terminal, compared with what its screen must show.
