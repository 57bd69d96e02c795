//! The text that stands between a string's quotes.

use std::borrow::Cow;

/// A string's text, and how many characters of it could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decoded<'a> {
    pub(crate) text: Cow<'a, str>,
    /// Lone surrogates and bytes that are no UTF-8, each now a U+FFFD.
    pub(crate) replaced: u32,
}

/// Decodes what stands between a string's quotes. The input has passed [`Scanner::string`].
pub(crate) fn decode(raw: &[u8]) -> Decoded<'_> {
    if memchr::memchr(b'\\', raw).is_none() {
        return match std::str::from_utf8(raw) {
            Ok(text) => Decoded { text: Cow::Borrowed(text), replaced: 0 },
            Err(_) => {
                let mut text = String::with_capacity(raw.len());
                let replaced = push_lossy(&mut text, raw);
                Decoded { text: Cow::Owned(text), replaced }
            }
        };
    }
    let mut text = String::with_capacity(raw.len());
    let mut replaced = 0;
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let (plain, escape) = rest.split_at(at);
        replaced += push_lossy(&mut text, plain);
        let (c, used) = unescape(escape);
        match c {
            Some(c) => text.push(c),
            None => {
                text.push(char::REPLACEMENT_CHARACTER);
                replaced += 1;
            }
        }
        rest = escape.get(used..).unwrap_or_default();
    }
    replaced += push_lossy(&mut text, rest);
    Decoded { text: Cow::Owned(text), replaced }
}

fn push_lossy(text: &mut String, raw: &[u8]) -> u32 {
    let mut replaced = 0;
    for chunk in raw.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
            replaced += 1;
        }
    }
    replaced
}

/// The character that an escape stands for (none for a lone surrogate), and its length in bytes.
fn unescape(escape: &[u8]) -> (Option<char>, usize) {
    let simple = match escape.get(1) {
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => {
            let unit = hex_unit(escape);
            if (0xD800..0xDC00).contains(&unit)
                && escape.get(6..8) == Some(b"\\u")
                && let low = hex_unit(escape.get(6..).unwrap_or_default())
                && (0xDC00..0xE000).contains(&low)
            {
                let point = 0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
                return (char::from_u32(point), 12);
            }
            return (char::from_u32(unit), 6);
        }
        Some(other) => char::from(*other),
        None => return (None, 1),
    };
    (Some(simple), 2)
}

/// The four digits after `\u`.
fn hex_unit(escape: &[u8]) -> u32 {
    escape
        .get(2..6)
        .unwrap_or_default()
        .iter()
        .fold(0, |unit, digit| unit << 4 | char::from(*digit).to_digit(16).unwrap_or(0))
}
