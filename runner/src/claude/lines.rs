//! Lines of unknown length from a process, in bounded memory.

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// Longer lines are not kept. The CLI's own lines are shorter: a reply is read from the transcript.
pub const MAX_LINE: usize = 16 * 1024 * 1024;

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// The line without its newline.
    Whole(Vec<u8>),
    /// A line of more than [`MAX_LINE`] bytes; what it held is gone.
    TooLong,
}

/// Reads the next line; `None` at the end. Not cancel-safe: a dropped future loses what it had read.
pub async fn next_line(input: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Option<Line>> {
    let mut line = Vec::new();
    let mut too_long = false;
    loop {
        let chunk = input.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(match (too_long, line.is_empty()) {
                (true, _) => Some(Line::TooLong),
                (false, true) => None,
                (false, false) => Some(Line::Whole(line)),
            });
        }
        let (part, ends) = match chunk.iter().position(|&byte| byte == b'\n') {
            Some(at) => (&chunk[..at], true),
            None => (chunk, false),
        };
        if line.len() + part.len() > MAX_LINE {
            too_long = true;
            line = Vec::new();
        } else if !too_long {
            line.extend_from_slice(part);
        }
        let used = part.len() + usize::from(ends);
        input.consume(used);
        if ends {
            return Ok(Some(if too_long { Line::TooLong } else { Line::Whole(line) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_split_and_long_ones_skipped() {
        let mut text = b"one\n\n".to_vec();
        text.extend(std::iter::repeat_n(b'x', MAX_LINE + 5));
        text.extend_from_slice(b"\ntwo\nlast");
        let mut input = tokio::io::BufReader::new(&text[..]);
        let mut seen = Vec::new();
        while let Some(line) = next_line(&mut input).await.unwrap() {
            seen.push(line);
        }
        let whole = |s: &str| Line::Whole(s.as_bytes().to_vec());
        assert_eq!(seen, [whole("one"), whole(""), Line::TooLong, whole("two"), whole("last")]);
    }
}
