//! A strict JSON scanner that reports where values are instead of building them.
//!
//! One pass over a row's bytes gives the spans of everything the reader needs; text is decoded only
//! where it is speech. Three things a transcript needs are why this is not `serde_json`: spans in
//! the row's own bytes (the ledger accounts for each of them), strings with lone surrogates or bytes
//! that are no UTF-8 (the CLI reads both as U+FFFD, facts 4), and one pass instead of one per
//! nesting level. The proof reads the same rows with `serde_json`, so that a mistake made here
//! shows there.

mod decode;

pub(crate) use decode::decode;

/// How deep values may nest; deeper input is damage, never a stack overflow.
const MAX_DEPTH: usize = 1024;

/// A stretch of a row's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    #[expect(clippy::cast_possible_truncation, reason = "a row is at most MAX_LINE bytes long")]
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    pub(crate) fn len(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    /// The bytes of `row` that this span covers; empty when it does not lie inside.
    pub(crate) fn of(self, row: &[u8]) -> &[u8] {
        row.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// A span given relative to this one's start, in the row's own terms.
    pub(crate) fn inner(self, from: usize, to: usize) -> Self {
        Self::new(self.start as usize + from, self.start as usize + to)
    }
}

/// The input is not JSON at this byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bad {
    pub(crate) at: usize,
}

/// Whether no control character is in there. One vectorised look at a whole row is cheaper than one
/// per string; a piece at a time, so that it can stop.
fn is_clean(bytes: &[u8]) -> bool {
    bytes.chunks(4096).all(|piece| piece.iter().fold(u8::MAX, |low, byte| low.min(*byte)) >= 0x20)
}

type Scanned<T> = Result<T, Bad>;

/// Reads JSON values from a byte slice, one after another.
pub(crate) struct Scanner<'a> {
    bytes: &'a [u8],
    pos: usize,
    /// The input holds no control character, so strings need no check for them.
    clean: bool,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, pos: 0, clean: is_clean(bytes) }
    }

    /// Reads the value that stands at a span of a row; positions are the row's.
    pub(crate) fn inside(row: &'a [u8], span: Span) -> Self {
        let bytes = row.get(..span.end as usize).unwrap_or_default();
        Self { bytes, pos: span.start as usize, clean: is_clean(span.of(row)) }
    }

    pub(crate) fn pos(&self) -> usize {
        self.pos
    }

    fn bad<T>(&self) -> Scanned<T> {
        Err(Bad { at: self.pos })
    }

    pub(crate) fn whitespace(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.bytes.get(self.pos) {
            self.pos += 1;
        }
    }

    /// The first byte of the next value, which says what it is.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        self.whitespace();
        self.bytes.get(self.pos).copied()
    }

    /// Passes over one value and says where it is.
    pub(crate) fn skip(&mut self) -> Scanned<Span> {
        let first = self.peek();
        let start = self.pos;
        match first {
            Some(b'"') => {
                let inner = self.string()?;
                Ok(Span::new(inner.start as usize - 1, inner.end as usize + 1))
            }
            Some(b'{' | b'[') => {
                self.skip_nested()?;
                Ok(Span::new(start, self.pos))
            }
            _ => {
                self.scalar()?;
                Ok(Span::new(start, self.pos))
            }
        }
    }

    /// Passes over one value.
    pub(crate) fn pass(&mut self) -> Scanned<()> {
        self.skip().map(drop)
    }

    /// Passes over an object or array without recursion.
    fn skip_nested(&mut self) -> Scanned<()> {
        // One bit a level: set for an object.
        let mut objects = [0_u64; MAX_DEPTH / 64];
        let mut depth = 0_usize;
        loop {
            match self.peek() {
                Some(open @ (b'{' | b'[')) => {
                    if depth == MAX_DEPTH {
                        return self.bad();
                    }
                    let bit = 1_u64 << (depth % 64);
                    let word = &mut objects[depth / 64];
                    if open == b'{' {
                        *word |= bit;
                    } else {
                        *word &= !bit;
                    }
                    depth += 1;
                    self.pos += 1;
                    match self.peek() {
                        Some(b'}') if open == b'{' => {}
                        Some(b']') if open == b'[' => {}
                        _ => {
                            if open == b'{' {
                                self.key()?;
                            }
                            continue;
                        }
                    }
                }
                Some(b'"') => {
                    self.string()?;
                }
                _ => self.scalar()?,
            }
            // After a value: close what ends here, then go on to the next one.
            loop {
                if depth == 0 {
                    return Ok(());
                }
                let is_object = objects[(depth - 1) / 64] >> ((depth - 1) % 64) & 1 == 1;
                match self.peek() {
                    Some(b'}') if is_object => {}
                    Some(b']') if !is_object => {}
                    Some(b',') => {
                        self.pos += 1;
                        if is_object {
                            self.key()?;
                        }
                        break;
                    }
                    _ => return self.bad(),
                }
                self.pos += 1;
                depth -= 1;
            }
        }
    }

    /// A key and its colon.
    fn key(&mut self) -> Scanned<Span> {
        self.whitespace();
        let key = self.string()?;
        if self.peek() != Some(b':') {
            return self.bad();
        }
        self.pos += 1;
        Ok(key)
    }

    /// A string's content, between its quotes, still escaped.
    pub(crate) fn string(&mut self) -> Scanned<Span> {
        self.whitespace();
        if self.bytes.get(self.pos) != Some(&b'"') {
            return self.bad();
        }
        self.pos += 1;
        let start = self.pos;
        loop {
            let rest = self.bytes.get(self.pos..).unwrap_or_default();
            // Most strings are short keys and ids; a call to memchr costs more than they do.
            let near = rest.iter().take(16).position(|b| matches!(b, b'"' | b'\\'));
            let Some(at) = near.or_else(|| memchr::memchr2(b'"', b'\\', rest)) else {
                self.pos = self.bytes.len();
                return self.bad();
            };
            if !self.clean
                && let Some(control) = rest.iter().take(at).position(|b| *b < 0x20)
            {
                self.pos += control;
                return self.bad();
            }
            self.pos += at + 1;
            if rest.get(at) == Some(&b'"') {
                return Ok(Span::new(start, self.pos - 1));
            }
            match self.bytes.get(self.pos) {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.pos += 1,
                Some(b'u') => {
                    let hex = self.bytes.get(self.pos + 1..self.pos + 5).unwrap_or_default();
                    if hex.len() != 4 || !hex.iter().all(u8::is_ascii_hexdigit) {
                        return self.bad();
                    }
                    self.pos += 5;
                }
                _ => return self.bad(),
            }
        }
    }

    /// A number, `true`, `false` or `null`.
    fn scalar(&mut self) -> Scanned<()> {
        let rest = self.bytes.get(self.pos..).unwrap_or_default();
        for word in [&b"true"[..], b"false", b"null"] {
            if rest.starts_with(word) {
                self.pos += word.len();
                return Ok(());
            }
        }
        let mut at = usize::from(rest.first() == Some(&b'-'));
        let digits = |from: usize| rest.iter().skip(from).take_while(|b| b.is_ascii_digit()).count();
        let whole = digits(at);
        if whole == 0 || (whole > 1 && rest.get(at) == Some(&b'0')) {
            return self.bad();
        }
        at += whole;
        if rest.get(at) == Some(&b'.') {
            let fraction = digits(at + 1);
            if fraction == 0 {
                return self.bad();
            }
            at += 1 + fraction;
        }
        if let Some(b'e' | b'E') = rest.get(at) {
            at += 1;
            if let Some(b'+' | b'-') = rest.get(at) {
                at += 1;
            }
            let exponent = digits(at);
            if exponent == 0 {
                return self.bad();
            }
            at += exponent;
        }
        self.pos += at;
        Ok(())
    }

    /// Walks an object; `member` is called with each key and must pass over the value.
    pub(crate) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, &[u8]) -> Scanned<()>,
    ) -> Scanned<Span> {
        if self.peek() != Some(b'{') {
            return self.bad();
        }
        let start = self.pos;
        self.pos += 1;
        if self.peek() == Some(b'}') {
            self.pos += 1;
            return Ok(Span::new(start, self.pos));
        }
        loop {
            let key = self.key()?;
            let raw = key.of(self.bytes);
            if memchr::memchr(b'\\', raw).is_some() {
                let decoded = decode(raw).text.into_owned();
                member(self, decoded.as_bytes())?;
            } else {
                member(self, raw)?;
            }
            match self.peek() {
                Some(b',') => self.pos += 1,
                Some(b'}') => {
                    self.pos += 1;
                    return Ok(Span::new(start, self.pos));
                }
                _ => return self.bad(),
            }
        }
    }

    /// Walks an array; `element` is called in front of each value and must pass over it.
    pub(crate) fn array(&mut self, mut element: impl FnMut(&mut Self) -> Scanned<()>) -> Scanned<Span> {
        if self.peek() != Some(b'[') {
            return self.bad();
        }
        let start = self.pos;
        self.pos += 1;
        if self.peek() == Some(b']') {
            self.pos += 1;
            return Ok(Span::new(start, self.pos));
        }
        loop {
            element(self)?;
            match self.peek() {
                Some(b',') => self.pos += 1,
                Some(b']') => {
                    self.pos += 1;
                    return Ok(Span::new(start, self.pos));
                }
                _ => return self.bad(),
            }
        }
    }

    /// The content of a string value, or nothing when the value is of another kind (passed over).
    pub(crate) fn maybe_string(&mut self) -> Scanned<Option<Span>> {
        if self.peek() == Some(b'"') { self.string().map(Some) } else { self.skip().map(|_| None) }
    }

    /// Whether the value is `true`; it is passed over.
    pub(crate) fn is_true(&mut self) -> Scanned<bool> {
        let value = self.skip()?;
        Ok(value.of(self.bytes) == b"true")
    }

    /// A whole number that is not negative; other values are passed over.
    pub(crate) fn maybe_number(&mut self) -> Scanned<Option<u64>> {
        let value = self.skip()?;
        Ok(std::str::from_utf8(value.of(self.bytes)).ok().and_then(|text| text.parse().ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn accepts(text: &[u8]) -> bool {
        let mut scanner = Scanner::new(text);
        scanner.skip().is_ok() && scanner.peek().is_none()
    }

    #[test]
    fn accepts_what_json_is_and_nothing_else() {
        for good in [
            r#"{"a":[1,-2.5e+3,{"b":null}],"c":"\u00e9\n"}"#,
            "[]",
            " {} ",
            r#""\ud83d""#,
            "[[],[{}],true,false,0]",
        ] {
            assert!(accepts(good.as_bytes()), "{good}");
        }
        for bad in [
            "{",
            "}",
            "[1,]",
            r#"{"a":1,}"#,
            r#"{"a" 1}"#,
            "01",
            "1.",
            "tru",
            r#""\x""#,
            r#""\u12g4""#,
            "\"\u{0}\"",
            "[1}",
            r#"{"a":1]"#,
            "",
            "nul",
            "\"open",
        ] {
            assert!(!accepts(bad.as_bytes()), "{bad}");
        }
        assert!(accepts(b"\"\xff\""), "bytes that are no UTF-8 are the decoder's matter");
        let deep = "[".repeat(100_000);
        assert!(!accepts(deep.as_bytes()), "depth is bounded");
    }

    #[test]
    fn decodes_what_the_cli_would_read() {
        let case = |raw: &[u8]| {
            let decoded = decode(raw);
            (decoded.text.into_owned(), decoded.replaced)
        };
        assert_eq!(case("风筝".as_bytes()), ("风筝".to_owned(), 0));
        assert_eq!(case(br"a\tb\/\\\u98ce"), ("a\tb/\\风".to_owned(), 0));
        assert_eq!(case(br"\ud83e\ude81"), ("🪁".to_owned(), 0));
        assert_eq!(case(br"x\ud83ey"), ("x\u{fffd}y".to_owned(), 1));
        assert_eq!(case(br"\ude81\ud83e"), ("\u{fffd}\u{fffd}".to_owned(), 2));
        assert_eq!(case(b"a\xffb"), ("a\u{fffd}b".to_owned(), 1));
        assert_eq!(case(b"\\n\xff"), ("\n\u{fffd}".to_owned(), 1));
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json_on_text(text in any::<String>()) {
            let raw = serde_json::to_string(&text).unwrap();
            let mut scanner = Scanner::new(raw.as_bytes());
            let span = scanner.string().unwrap();
            let decoded = decode(span.of(raw.as_bytes())).text.into_owned();
            prop_assert_eq!(decoded, text);
        }

        #[test]
        fn agrees_with_serde_json_on_what_is_json(text in r#"[\[\]{},:"a0-9.eE+\\untrfls -]{0,24}"#) {
            let theirs = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
            prop_assert_eq!(accepts(text.as_bytes()), theirs, "{}", text);
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut scanner = Scanner::new(&bytes);
            if let Ok(span) = scanner.skip() {
                decode(span.of(&bytes));
            }
            decode(&bytes);
        }
    }
}
