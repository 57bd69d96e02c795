//! The one-line marker that stands for an image or document without words.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::json::{Bad, Scanner, Span, decode};

/// What a media block says about itself.
#[derive(Debug, Default)]
struct Media {
    kind: Option<Span>,
    media_type: Option<Span>,
    data: Option<Span>,
    elsewhere: Option<Span>,
}

/// `[image: image/png, 12345 bytes, sha256 <64 hex>]` for an image or document block.
pub(crate) fn marker(row: &[u8], block: Span) -> String {
    let media = parse(row, block).unwrap_or_default();
    let text = |span: Option<Span>| span.map(|span| decode(span.of(row)).text.into_owned());
    let kind = match media.kind.map(|kind| kind.of(row)) {
        Some(b"document") => "document",
        _ => "image",
    };
    let kind_of_data = text(media.media_type).unwrap_or_else(|| "unknown".to_owned());
    let kind_of_data: String =
        kind_of_data.chars().filter(|c| !c.is_control() && *c != ']').take(80).collect();
    let (bytes, digest) = match (media.data, media.elsewhere) {
        (Some(data), _) => digest_of_base64(&decode(data.of(row)).text),
        (None, Some(elsewhere)) => digest_of(decode(elsewhere.of(row)).text.as_bytes()),
        (None, None) => digest_of(block.of(row)),
    };
    format!("[{kind}: {kind_of_data}, {bytes} bytes, sha256 {digest}]")
}

fn parse(row: &[u8], block: Span) -> Result<Media, Bad> {
    let mut media = Media::default();
    let mut s = Scanner::inside(row, block);
    s.object(|s, key| {
        match key {
            b"type" => media.kind = s.maybe_string()?,
            b"source" if s.peek() == Some(b'{') => {
                s.object(|s, key| {
                    match key {
                        b"media_type" => media.media_type = s.maybe_string()?,
                        b"data" => media.data = s.maybe_string()?,
                        b"url" | b"file_id" => media.elsewhere = s.maybe_string()?,
                        _ => s.pass()?,
                    }
                    Ok(())
                })?;
            }
            _ => s.pass()?,
        }
        Ok(())
    })?;
    Ok(media)
}

/// Size and digest of what base64 stands for; of the text itself where it is none. A piece at a
/// time, since images are the largest things in a transcript.
fn digest_of_base64(text: &str) -> (u64, String) {
    let mut hasher = Sha256::new();
    let mut bytes = 0;
    for piece in text.as_bytes().chunks(64 << 10) {
        let Ok(decoded) = STANDARD.decode(piece) else { return digest_of(text.as_bytes()) };
        bytes += decoded.len() as u64;
        hasher.update(&decoded);
    }
    (bytes, hex(&hasher.finalize()))
}

fn digest_of(bytes: &[u8]) -> (u64, String) {
    (bytes.len() as u64, hex(&Sha256::digest(bytes)))
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_name_kind_size_and_digest() {
        let case = |block: &str| marker(block.as_bytes(), Span::new(0, block.len()));
        assert_eq!(
            case(
                r#"{"source":{"data":"a2l0ZQ==","type":"base64","media_type":"image\/png"},"type":"image"}"#
            ),
            format!("[image: image/png, 4 bytes, sha256 {}]", digest_of(b"kite").1)
        );
        assert_eq!(
            case(r#"{"type":"document","source":{"type":"url","url":"https://example.org/a.pdf"}}"#),
            format!("[document: unknown, 25 bytes, sha256 {}]", digest_of(b"https://example.org/a.pdf").1)
        );
        let broken = r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"***"}}"#;
        assert_eq!(case(broken), format!("[image: image/png, 3 bytes, sha256 {}]", digest_of(b"***").1));
    }

    #[test]
    fn long_images_are_decoded_in_pieces() {
        let image = vec![7_u8; 200_000];
        assert_eq!(digest_of_base64(&STANDARD.encode(&image)), digest_of(&image));
    }
}
