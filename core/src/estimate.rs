//! How many tokens a text takes, before anything was measured (DESIGN 5).

/// Estimates the tokens of a text: 1.1 for each Chinese, Japanese or Korean character, one for each
/// 1.5 other characters. Rounded up, so that no text is free.
#[must_use]
pub fn tokens(text: &str) -> u64 {
    let mut count = Count::default();
    count.add(text);
    count.tokens()
}

/// A running estimate over many texts, rounded once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    cjk: u64,
    other: u64,
}

impl Count {
    /// Counts another text in.
    pub fn add(&mut self, text: &str) {
        for c in text.chars() {
            if is_cjk(c) { self.cjk += 1 } else { self.other += 1 }
        }
    }

    /// Both counts together.
    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        Self { cjk: self.cjk + more.cjk, other: self.other + more.other }
    }

    /// The estimate for what was counted.
    #[must_use]
    pub const fn tokens(self) -> u64 {
        // In thirtieths of a token: 1.1 is 33, one of 1.5 is 20.
        (self.cjk * 33 + self.other * 20).div_ceil(30)
    }
}

/// Scripts whose characters are about a token each.
pub(crate) const fn is_cjk(c: char) -> bool {
    matches!(c,
        '\u{1100}'..='\u{11FF}'
        | '\u{2E80}'..='\u{2FDF}'
        | '\u{3000}'..='\u{30FF}'
        | '\u{3100}'..='\u{31FF}'
        | '\u{3400}'..='\u{4DBF}'
        | '\u{4E00}'..='\u{9FFF}'
        | '\u{A960}'..='\u{A97F}'
        | '\u{AC00}'..='\u{D7FF}'
        | '\u{F900}'..='\u{FAFF}'
        | '\u{FF00}'..='\u{FFEF}'
        | '\u{20000}'..='\u{3FFFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_weighed_as_agreed() {
        for (text, expected) in [
            ("", 0),
            ("a", 1),
            ("abc", 2),
            ("风筝飞了", 5),
            ("風の音", 4),
            ("하늘", 3),
            ("🪁🪁🪁", 2),
            ("مرحبا", 4),
        ] {
            assert_eq!(tokens(text), expected, "{text}");
        }
        assert_eq!(tokens(&"风".repeat(1000)), 1100);
    }

    #[test]
    fn a_running_count_rounds_once() {
        let mut count = Count::default();
        for _ in 0..30 {
            count.add("a");
        }
        assert_eq!(count.tokens(), 20);
        assert_eq!(count.plus(count).tokens(), 40);
    }
}
