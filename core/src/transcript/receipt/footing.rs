//! Whether what the next resume loads still stands on the conversation before it (facts 4).
//!
//! A CLI that could not write a row goes on writing the ones after it. They hang on nothing, and because the last row of
//! the file decides what is resumed, everything said before would be out of the model's sight without a word.

use std::collections::HashSet;
use std::path::Path;

use super::{REACH, ancestors, line_start, uuid_of};
use crate::transcript::error::TranscriptError;
use crate::transcript::head::BlockKind;
use crate::transcript::index::{Link, RowNo, flag};
use crate::transcript::judge::Context;
use crate::transcript::rows::Rows;
use crate::transcript::rules::{ExtractRules, OwnRows};
use crate::transcript::survey::Survey;

/// What the end of a transcript stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Footing {
    /// The conversation before.
    Firm,
    /// Rows that were written since hang on nothing.
    Cut {
        /// The uuid of the model's last row in front of them that has its history: where it can be gone on from.
        last_assistant: Option<String>,
        /// Tools were called in the rows that hang on nothing.
        tools: bool,
    },
}

/// Looks at what the next resume would load. `known` is the size of the file when its end was last known to be firm; what
/// stands in front of it is not questioned. Reads mostly what was written since. A file that is not there, or that has
/// become shorter, tells nothing and counts as firm. Blocking.
///
/// # Errors
///
/// When the file cannot be read, or changes while it is.
pub fn footing(transcript: &Path, known: u64) -> Result<Footing, TranscriptError> {
    let mut reach = REACH;
    loop {
        let start = match line_start(transcript, known, reach) {
            Ok(start) => start,
            Err(error) if error.is_not_found() => return Ok(Footing::Firm),
            Err(error) => return Err(error),
        };
        if let Some(footing) = look(transcript, start, known)? {
            return Ok(footing);
        }
        reach = reach.saturating_mul(8);
    }
}

fn look(transcript: &Path, start: u64, known: u64) -> Result<Option<Footing>, TranscriptError> {
    let (rules, own) = (ExtractRules::default(), OwnRows::default());
    let context = Context { rules: &rules, own: &own };
    let mut survey = match Survey::tail(transcript, context, start) {
        Ok(survey) => survey,
        Err(error) if error.is_not_found() => return Ok(Some(Footing::Firm)),
        Err(error) => return Err(error),
    };
    let whole = start == 0;
    let is_new = |survey: &Survey, row: RowNo| survey.index.get(row).is_some_and(|e| e.offset() >= known);
    if known == 0 || survey.end.offset < known {
        return Ok(Some(Footing::Firm));
    }
    // One that names no row here may name one in front.
    let named = survey.last_leaf.last().is_some_and(|leaf| survey.index.find(*leaf).is_some());
    if !whole && !named {
        return Ok(None);
    }
    let Some(leaf) = survey.leaf() else { return Ok(Some(Footing::Firm)) };
    let Some(first) = ancestors(&survey, leaf).take_while(|row| is_new(&survey, *row)).last() else {
        return Ok(Some(Footing::Firm));
    };
    let Some(entry) = survey.index.get(first) else { return Ok(Some(Footing::Firm)) };
    match entry.parent() {
        Link::Row(parent) if !is_new(&survey, parent) => return Ok(Some(Footing::Firm)),
        // A compaction begins anew and names what it came from.
        Link::Root if entry.has(flag::BOUNDARY) => return Ok(Some(Footing::Firm)),
        // The parent may stand in front of what was read.
        Link::Missing if !whole => return Ok(None),
        // A ring, a second beginning, a parent that is nowhere.
        Link::Row(_) | Link::Root | Link::Missing => {}
    }
    if !whole {
        return look(transcript, 0, known);
    }
    let mut rows = Rows::open(transcript)?;
    let firm = |row: RowNo| {
        let last = ancestors(&survey, row).last();
        last.and_then(|row| survey.index.get(row)).is_some_and(|entry| entry.parent() == Link::Root)
    };
    let before = (0..survey.index.len())
        .rev()
        .find(|row| !is_new(&survey, *row) && survey.index.has(*row, flag::MODEL) && firm(*row));
    let last_assistant = uuid_of(before, &survey, &mut rows)?;
    let new: HashSet<RowNo> = (first..survey.index.len()).filter(|row| is_new(&survey, *row)).collect();
    let mut tools = false;
    for row in new {
        if let Some(entry) = survey.index.get(row) {
            let (_, head) = rows.read(entry)?;
            tools |= head.blocks.iter().any(|block| block.kind == BlockKind::ToolUse);
        }
    }
    Ok(Some(Footing::Cut { last_assistant, tools }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Script, uuid};
    use serde_json::json;

    fn size(script: &Script) -> u64 {
        script.file().path.metadata().unwrap().len()
    }

    fn of(script: &Script, known: u64) -> Footing {
        footing(&script.file().path, known).unwrap()
    }

    /// An answered turn, and the size of the file after it.
    fn answered() -> (Script, String, u64) {
        let mut script = Script::new();
        script.human("风筝是什么颜色？");
        let answer = script.says("红的。");
        let known = size(&script);
        (script, answer, known)
    }

    /// An answer to a message whose row was never written.
    fn orphan(ours: &str) -> serde_json::Value {
        json!({"type": "assistant", "uuid": uuid(77), "parentUuid": ours, "sessionId": uuid(500),
            "timestamp": "2026-01-01T00:00:00.000Z", "isSidechain": false, "message": {"id": "msg_77",
            "role": "assistant", "type": "message", "model": "claude-x", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "White."}], "usage": {"input_tokens": 1, "output_tokens": 1}}})
    }

    #[test]
    fn what_hangs_on_the_conversation_is_firm() {
        let (mut script, _, known) = answered();
        assert_eq!(of(&script, known), Footing::Firm, "nothing was written since");
        script.human("and the string?");
        script.says("White.");
        assert_eq!(of(&script, known), Footing::Firm);
        assert_eq!(of(&script, 0), Footing::Firm, "nothing was known");
        assert_eq!(of(&script, u64::MAX), Footing::Firm, "it has become shorter");
        assert_eq!(footing(Path::new("/nonexistent/x.jsonl"), 9).unwrap(), Footing::Firm);
    }

    #[test]
    fn an_answer_to_a_row_that_was_never_written_cuts_the_conversation_off() {
        let (mut script, answer, known) = answered();
        let ours = uuid(76);
        script.line(&orphan(&ours));
        let cut = Footing::Cut { last_assistant: Some(answer), tools: false };
        assert_eq!(of(&script, known), cut);
        // Sent again under the same uuid the two hang on each other.
        script.line(&json!({"type": "user", "uuid": ours, "parentUuid": uuid(77), "sessionId": uuid(500),
            "timestamp": "2026-01-01T00:00:01.000Z", "isSidechain": false,
            "message": {"role": "user", "content": "and the string?"}}));
        assert_eq!(of(&script, known), cut);
    }

    #[test]
    fn a_second_beginning_is_a_cut_and_a_compaction_is_none() {
        let (mut script, answer, known) = answered();
        script.line(&json!({"type": "user", "uuid": uuid(76), "parentUuid": null, "sessionId": uuid(500),
            "timestamp": "2026-01-01T00:00:01.000Z", "isSidechain": false,
            "message": {"role": "user", "content": "who are you?"}}));
        assert_eq!(of(&script, known), Footing::Cut { last_assistant: Some(answer), tools: false });

        let (mut script, answer, known) = answered();
        script.line(&json!({"type": "system", "subtype": "compact_boundary", "uuid": uuid(78), "parentUuid": null,
            "logicalParentUuid": answer, "sessionId": uuid(500), "timestamp": "2026-01-01T00:00:01.000Z",
            "isSidechain": false, "content": "Conversation compacted", "compactMetadata": {"trigger": "auto"}}));
        assert_eq!(of(&script, known), Footing::Firm);
    }

    #[test]
    fn tools_that_ran_where_nothing_hangs_are_seen() {
        let (mut script, answer, known) = answered();
        let mut row = orphan(&uuid(76));
        row["message"]["content"] =
            json!([{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}]);
        script.line(&row);
        assert_eq!(of(&script, known), Footing::Cut { last_assistant: Some(answer), tools: true });
    }
}
