//! Turns: numbering, the open tail, and what the owner's limits leave out.

use std::collections::HashSet;

use crate::transcript::{ItemKind, Role, Rule};

use super::items::PlannedItem;
use super::settings::{CarryOverflow, RebuildSettings};

/// Whole turns that `carry_max_tokens` never drops.
const KEPT_TURNS: u32 = 12;

/// What was selected.
pub(super) struct Selected {
    pub(super) items: Vec<PlannedItem>,
    /// Items left out, with the rule that did it.
    pub(super) left_out: Vec<(Rule, PlannedItem)>,
    pub(super) source_turns: u32,
    pub(super) selected_turns: u32,
    pub(super) open_tail_turns: u32,
    pub(super) dropped_oldest_turns: u32,
    pub(super) tokens: u64,
    /// More than `carry_max_tokens` even so.
    pub(super) overflow: bool,
}

/// Numbers turns: human speech after assistant speech begins a new one. Returns how many there are.
pub(super) fn number(items: &mut [PlannedItem]) -> u32 {
    let mut turns = 0;
    let mut last = None;
    for item in items {
        // What the runtime said in front of the conversation belongs to its first turn.
        let speaks = !matches!(item.kind, ItemKind::Snapshot);
        if turns == 0 || (speaks && item.role == Role::Human && last == Some(Role::Assistant)) {
            turns += 1;
        }
        item.turn = turns - 1;
        if speaks {
            last = Some(item.role);
        }
    }
    turns
}

/// Whether a turn has no answer yet. Our own marker is none.
fn is_open(items: &[PlannedItem], turn: u32) -> bool {
    let mut of_turn = items.iter().filter(|item| item.turn == turn);
    !items.is_empty() && of_turn.all(|item| item.role == Role::Human || item.kind == ItemKind::OpenTail)
}

/// Selects what is carried.
pub(super) fn select(
    mut items: Vec<PlannedItem>,
    resend: &HashSet<usize>,
    from_inbox: &HashSet<usize>,
    settings: &RebuildSettings,
) -> Selected {
    let source_turns = number(&mut items);
    let mut left_out = Vec::new();
    let last = source_turns.saturating_sub(1);
    let open = is_open(&items, last);
    if open {
        let mut kept = Vec::new();
        for (at, item) in items.into_iter().enumerate() {
            let tail = item.turn == last && item.role == Role::Human;
            if tail && resend.contains(&at) {
                left_out.push((Rule::OpenTailResend, item));
            } else if tail && !settings.include_open_tail && !from_inbox.contains(&at) {
                left_out.push((Rule::OpenTailExcluded, item));
            } else {
                kept.push(item);
            }
        }
        items = kept;
        close_tail(&mut items, last);
    }
    if settings.stamp_turns {
        stamp(&mut items);
    }
    let total = |items: &[PlannedItem]| items.iter().map(|item| item.tokens).sum::<u64>();
    let mut tokens = total(&items);
    let mut dropped = 0;
    let max = settings.carry_max_tokens;
    if max > 0 && settings.carry_overflow == CarryOverflow::DropOldest {
        // From the oldest on, as long as it is too much and enough turns stay.
        let mut first_kept = 0;
        while tokens > max && source_turns - first_kept > KEPT_TURNS {
            let turn = items.iter().filter(|item| item.turn == first_kept && item.kind != ItemKind::Snapshot);
            tokens -= turn.map(|item| item.tokens).sum::<u64>();
            first_kept += 1;
        }
        let (out, kept): (Vec<_>, Vec<_>) =
            items.into_iter().partition(|item| item.turn < first_kept && item.kind != ItemKind::Snapshot);
        left_out.extend(out.into_iter().map(|item| (Rule::DroppedOldest, item)));
        items = kept;
        dropped = first_kept;
    }
    let turns: HashSet<u32> = items.iter().map(|item| item.turn).collect();
    let open_tail = open && items.iter().any(|item| item.turn == last);
    Selected {
        source_turns,
        selected_turns: u32::try_from(turns.len()).unwrap_or(u32::MAX),
        open_tail_turns: u32::from(open_tail),
        dropped_oldest_turns: dropped,
        overflow: max > 0 && tokens > max,
        tokens,
        items,
        left_out,
    }
}

/// An open tail that is carried as history ends in our marker; one that is not carried leaves none.
fn close_tail(items: &mut Vec<PlannedItem>, turn: u32) {
    let spoken = items.iter().any(|item| item.turn == turn && item.role == Role::Human);
    if !spoken {
        items.retain(|item| item.turn != turn);
    }
    let Some(before) = items.last() else { return };
    if !spoken || before.kind == ItemKind::OpenTail {
        return;
    }
    items.push(PlannedItem {
        role: Role::Assistant,
        kind: ItemKind::OpenTail,
        generation: 1,
        tokens: crate::estimate::tokens(super::words::OPEN_TAIL),
        number: 0,
        is_string: false,
        stamped: false,
        is_new_marker: true,
        keep_chars: 0,
        parts: Vec::new(),
        ..before.clone()
    });
}

/// A stamp, for the estimate: all are of one length.
const STAMP_LIKE: &str = "[发生时间: 2026-01-01T00:00:00.000Z]\n";

/// Each turn's first human message gets its time.
fn stamp(items: &mut [PlannedItem]) {
    let mut stamped = None;
    for item in items {
        let speaks = !matches!(item.kind, ItemKind::Snapshot | ItemKind::Summary);
        if item.role == Role::Human && speaks && stamped != Some(item.turn) {
            item.stamped = true;
            item.tokens += crate::estimate::tokens(STAMP_LIKE);
            stamped = Some(item.turn);
        }
    }
}
