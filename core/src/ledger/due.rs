//! When a session is due for a rebuild (DESIGN 5).

use super::LedgerReport;

/// The triggers' settings; 0 or false turns one off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budgets {
    /// Noise since the first turn after the last switch, in bytes.
    pub dirty_budget_bytes: u64,
    /// How full the context may be, in tokens.
    pub context_budget_tokens: u64,
    /// The same in percent of the window.
    pub context_budget_percent: u8,
    /// Whether an image that the model opened is a reason.
    pub rebuild_on_original_image_view: bool,
    /// The model's window in tokens; 0 when it is not known.
    pub context_window: u64,
}

/// Why the session is due; empty when it is not.
///
/// `baseline_total_bytes` is `total_bytes` at the end of the first turn after a switch: what the CLI
/// writes there by itself is no reason for the next rebuild.
#[must_use]
pub fn due(report: &LedgerReport, baseline_total_bytes: u64, budgets: &Budgets) -> Vec<String> {
    let mut reasons = Vec::new();
    let grown = report.total_bytes.saturating_sub(baseline_total_bytes);
    let budget = budgets.dirty_budget_bytes;
    if budget > 0 && grown >= budget {
        reasons.push(format!("dirty budget reached: {grown} >= {budget} bytes"));
    }
    let level = report.water_level.map_or(0, |usage| usage.total());
    let budget = budgets.context_budget_tokens;
    if budget > 0 && level >= budget {
        reasons.push(format!("context budget reached: {level} >= {budget} tokens"));
    }
    let (percent, window) = (u64::from(budgets.context_budget_percent), budgets.context_window);
    if percent > 0 && window > 0 && level.saturating_mul(100) >= window.saturating_mul(percent) {
        let full = level.saturating_mul(100) / window;
        reasons.push(format!("context window {full} % full: {level} of {window} tokens, budget {percent} %"));
    }
    if budgets.rebuild_on_original_image_view && report.original_image_view_count > 0 {
        reasons.push(format!("original image view: {}", report.original_image_view_count));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::receipt::Usage;

    const BUDGETS: Budgets = Budgets {
        dirty_budget_bytes: 1000,
        context_budget_tokens: 500,
        context_budget_percent: 60,
        rebuild_on_original_image_view: true,
        context_window: 1000,
    };

    fn report(total_bytes: u64, level: u64, images: u64) -> LedgerReport {
        LedgerReport {
            total_bytes,
            original_image_view_count: images,
            water_level: Some(Usage { input_tokens: level, ..Usage::default() }),
            ..LedgerReport::default()
        }
    }

    #[test]
    fn each_trigger_gives_its_own_reason() {
        assert_eq!(due(&report(999, 0, 0), 0, &BUDGETS), Vec::<String>::new());
        assert_eq!(due(&report(1500, 0, 0), 501, &BUDGETS), Vec::<String>::new());
        insta::assert_debug_snapshot!(due(&report(1500, 650, 2), 500, &BUDGETS), @r#"
        [
            "dirty budget reached: 1000 >= 1000 bytes",
            "context budget reached: 650 >= 500 tokens",
            "context window 65 % full: 650 of 1000 tokens, budget 60 %",
            "original image view: 2",
        ]
        "#);
        let off = Budgets {
            dirty_budget_bytes: 0,
            context_budget_tokens: 0,
            context_budget_percent: 0,
            rebuild_on_original_image_view: false,
            context_window: 0,
        };
        assert_eq!(due(&report(1 << 40, 1 << 40, 9), 0, &off), Vec::<String>::new());
    }
}
