//! The plan as `plan --json` prints it: the original's fields, then ours (DESIGN 12).

use std::path::Path;

use serde_json::{Value, json};

use super::plan::Plan;

/// What the original prints beside a plan: that it is read-only.
const NOTE: &str = "read-only: nothing was written or switched";

impl Plan {
    /// The plan's JSON. `dirty` is what `LedgerReport::to_json` gives for the same source.
    #[must_use]
    pub fn to_json(&self, source: &Path, dirty: &Value) -> Value {
        json!({
            "ok": self.blocked.is_empty(),
            "source_path": source,
            "source_sha256": self.source_sha256,
            "source_session_id": self.source_session,
            "stats": self.stats,
            "dirty": dirty,
            "blocked_reason": self.blocked_reason(),
            "note": NOTE,
            "blocked": self.blocked,
            "drops": self.drops,
            "off_chain": self.off_chain,
            "gain": self.gain,
            "damage": self.damage,
            "stitched": self.stitched,
            "compactions": self.compactions,
            "replaced_characters": self.replaced_characters,
            "open_tail_resend": self.open_tail_resend,
            "reply_elsewhere": { "count": self.reply_elsewhere.len(), "lines": self.reply_elsewhere },
            "generation": self.generation(),
            "calibration": self.calibration,
            "versions": self.versions,
            "digest": self.digest(),
        })
    }
}
