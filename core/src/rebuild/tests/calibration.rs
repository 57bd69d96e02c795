//! Estimates are corrected by what the conversation itself took (DESIGN 5).

use serde_json::json;

use super::*;
use crate::estimate::{Calibration, Pair, tokens};

/// Talk whose texts take seven tenths of their estimate, on top of 20000 tokens of overhead.
fn talk(turns: usize, noise: bool) -> Script {
    let mut script = Script::new();
    let mut sent = 20_000;
    for turn in 0..turns {
        let question = format!("{turn}: {}", "风筝是什么颜色的呢？ what colour is it? ".repeat(6));
        let answer = format!("{turn}: {}", "It is red, 红的, with a long tail. ".repeat(9));
        script.human(&question);
        sent += tokens(&question) * 7 / 10;
        if noise && turn % 2 == 1 {
            script.attachment(json!({"type": "file", "filename": "a", "content": "x".repeat(20_000)}));
            sent += 9_000;
        }
        let usage = json!({"input_tokens": sent, "output_tokens": 9});
        let message = json!({"id": format!("msg_{turn}"), "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "text", "text": answer}], "stop_reason": "end_turn", "usage": usage});
        script.row(json!({"type": "assistant", "message": message}));
        sent += tokens(&answer) * 7 / 10;
    }
    script
}

#[test]
fn estimates_are_within_five_percent_once_calibrated() {
    for noise in [false, true] {
        let plan = Ask::new().plan(&talk(20, noise).file().path);
        assert!(plan.calibration.pairs >= 3, "{noise} {:?} {:?}", plan.calibration, plan.pairs);
        let raw: u64 = plan.gain.speech_tokens * 1000 / u64::from(plan.calibration.per_mille);
        let truth = raw * 7 / 10;
        let off = plan.gain.speech_tokens.abs_diff(truth);
        assert!(off * 20 <= truth, "{off} of {truth}, noise {noise}, {:?}", plan.calibration);
        assert!(plan.gain.overhead_tokens.abs_diff(20_000) < 300, "{}", plan.gain.overhead_tokens);
    }
}

#[test]
fn a_conversation_that_shows_nothing_takes_what_earlier_ones_did() {
    let mut script = Script::new();
    script.human(&"风".repeat(1000));
    script.says("yes");
    let mut ask = Ask::new();
    assert_eq!(ask.plan(&script.file().path).gain.speech_tokens, 1102);
    ask.settings.calibration = Calibration::from_pairs(&[Pair { estimated: 1000, measured: 800 }]);
    assert_eq!(ask.plan(&script.file().path).gain.speech_tokens, 882);
}
