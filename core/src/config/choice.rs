//! The values of keys that choose between named ways.

use super::setting::choices;

choices! {
    /// How a switch is made (DESIGN 8).
    Activation {
        /// Between two invocations, by the resume pointer.
        Pointer = "pointer",
        /// By respawning a tmux pane.
        Tmux = "tmux",
        /// By restarting a systemd unit.
        Systemd = "systemd",
    }

    /// Which systemd manager owns the unit.
    SystemdScope {
        /// The system's.
        System = "system",
        /// The user's.
        User = "user",
    }

    /// What happens when the conversation is longer than `carry_max_tokens` (DESIGN 6).
    CarryOverflow {
        /// Whole oldest turns are left out and counted.
        DropOldest = "drop_oldest",
        /// The rebuild blocks.
        Block = "block",
    }

    /// What the runner does when a rebuild is due (DESIGN 9).
    RebuildPolicy {
        /// Nothing.
        Off = "off",
        /// It asks a human.
        Ask = "ask",
        /// It rebuilds: the human's yes was given beforehand, by this value.
        Auto = "auto",
    }

    /// Whose yes a rebuild needs (DESIGN 9).
    Consent {
        /// A human's, bound to the plan.
        Human = "human",
        /// The word of a request is enough.
        Word = "word",
    }

    /// What happens when only a rebuild mends a session that the API refuses (DESIGN 9).
    Emergency {
        /// A human is asked.
        Ask = "ask",
        /// It is rebuilt at once.
        Auto = "auto",
    }

    /// What happens to speech that stands on no branch of the conversation (DESIGN 4).
    OffChain {
        /// The rebuild blocks once and shows the branches.
        Ask = "ask",
        /// It is left out, counted and listed.
        Drop = "drop",
        /// It is carried.
        Carry = "carry",
    }

    /// Which texts of a turn are its reply.
    ReplyMode {
        /// Every text the assistant said, in order.
        All = "all",
        /// The last message only.
        Final = "final",
    }

    /// What happens when a process ended inside a tool, whose effect is then unknown (DESIGN 9).
    InterruptedTool {
        /// The model is told to check before it repeats the tool.
        Note = "note",
        /// A human is asked.
        Ask = "ask",
        /// The tool is run again.
        Rerun = "rerun",
    }
}
