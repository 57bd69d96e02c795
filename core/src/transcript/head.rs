//! What one row says about itself: one pass over its bytes, spans instead of values.
//!
//! A [`Head`] is reused from row to row, so that reading allocates only for rows with many blocks.
//! It knows names of fields and nothing about what they mean; that is `judge`'s matter.

use super::json::{Bad, Scanner, Span};

/// A row's type. Types that only the drift table knows are `Other`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RowKind {
    User,
    Assistant,
    Attachment,
    System,
    Progress,
    QueueOperation,
    LastPrompt,
    #[default]
    Other,
}

impl RowKind {
    fn of(name: &[u8]) -> Self {
        match name {
            b"user" => Self::User,
            b"assistant" => Self::Assistant,
            b"attachment" => Self::Attachment,
            b"system" => Self::System,
            b"progress" => Self::Progress,
            b"queue-operation" => Self::QueueOperation,
            b"last-prompt" => Self::LastPrompt,
            _ => Self::Other,
        }
    }
}

/// What `parentUuid` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Parent {
    #[default]
    Absent,
    Null,
    Row(Span),
}

/// What a content block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum BlockKind {
    Text,
    Thinking,
    ToolUse,
    ToolResult,
    Image,
    Document,
    #[default]
    Other,
}

/// One content block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) whole: Span,
    pub(crate) kind: BlockKind,
    /// The `type` as it stands.
    pub(crate) name: Option<Span>,
    /// `text`, where it is a string.
    pub(crate) text: Option<Span>,
    /// `id` of a tool_use, `tool_use_id` of a tool_result.
    pub(crate) id: Option<Span>,
    /// `name` of a tool_use.
    pub(crate) tool: Option<Span>,
    /// `input` of a tool_use.
    pub(crate) input: Option<Span>,
    /// `content` of a tool_result.
    pub(crate) content: Option<Span>,
    /// `source` of an image or document.
    pub(crate) source: Option<Span>,
    pub(crate) is_error: bool,
    /// Images inside a tool_result.
    pub(crate) images: u32,
}

/// A message's or a queued prompt's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Content {
    #[default]
    Absent,
    /// A string: what stands between its quotes.
    Text(Span),
    /// A list of blocks, in [`Head::blocks`].
    Blocks,
    /// Anything else.
    Odd(Span),
}

/// `usage` of an assistant row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct UsageHead {
    pub(crate) input: u64,
    pub(crate) cache_read: u64,
    pub(crate) cache_creation: u64,
    pub(crate) output: u64,
}

/// Our own mark in a row of a candidate (DESIGN 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct KaelHead {
    pub(crate) source: Option<Span>,
    pub(crate) kind: Option<Span>,
    pub(crate) time: Option<Span>,
    pub(crate) stamp: u64,
    pub(crate) generation: u64,
    pub(crate) cut: bool,
    /// The source had no time; that of the row is made up.
    pub(crate) timeless: bool,
}

/// A field of no known name, where it might hold words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Odd {
    pub(crate) level: Level,
    pub(crate) key: Span,
    pub(crate) value: Span,
}

/// In what a field stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Row,
    Message,
    Attachment,
    /// A content block, by its place.
    Block(u16),
}

/// The parts of a row that anything here looks at, as spans into its bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Head {
    pub(crate) kind: RowKind,
    pub(crate) type_name: Option<Span>,
    pub(crate) subtype: Option<Span>,
    pub(crate) uuid: Option<Span>,
    pub(crate) parent: Parent,
    pub(crate) logical_parent: Option<Span>,
    pub(crate) session: Option<Span>,
    pub(crate) timestamp: Option<Span>,
    pub(crate) version: Option<Span>,
    pub(crate) is_sidechain: bool,
    pub(crate) is_meta: bool,
    pub(crate) is_compact_summary: bool,
    pub(crate) is_visible_only: bool,
    pub(crate) is_api_error: bool,
    pub(crate) is_synthetic_input: bool,
    pub(crate) api_error_status: Option<u64>,
    pub(crate) api_block_index: Option<u64>,
    pub(crate) has_plan_content: bool,
    /// It has fields that versions without provenance write on what somebody typed.
    pub(crate) is_typed: bool,
    pub(crate) origin_kind: Option<Span>,
    pub(crate) prompt_source: Option<Span>,
    pub(crate) turn_origin: Option<Span>,
    pub(crate) row_source: Option<Span>,
    pub(crate) merged_sends: Option<Span>,
    pub(crate) tool_use_result: Option<Span>,
    // message
    pub(crate) message: Option<Span>,
    pub(crate) message_id: Option<Span>,
    pub(crate) role: Option<Span>,
    pub(crate) model: Option<Span>,
    pub(crate) stop_reason: Option<Span>,
    pub(crate) usage: Option<UsageHead>,
    pub(crate) content: Content,
    /// Blocks of the message, or of an attachment's prompt.
    pub(crate) blocks: Vec<Block>,
    // attachment
    pub(crate) attachment: Option<Span>,
    pub(crate) attachment_type: Option<Span>,
    pub(crate) prompt: Content,
    pub(crate) command_mode: Option<Span>,
    pub(crate) source_uuid: Option<Span>,
    pub(crate) attachment_origin: Option<Span>,
    pub(crate) rendered: Option<Span>,
    // queue-operation, system
    pub(crate) operation: Option<Span>,
    pub(crate) row_content: Option<Span>,
    // last-prompt, summary
    pub(crate) leaf: Option<Span>,
    pub(crate) last_prompt: Option<Span>,
    pub(crate) kael: Option<KaelHead>,
    /// Fields that nothing here reads and whose value is text or holds some.
    pub(crate) odd: Vec<Odd>,
}

/// Fields of rows that nothing reads and that are on nearly every row.
const COMMON: &[&[u8]] =
    &[b"cwd", b"gitBranch", b"userType", b"entrypoint", b"slug", b"requestId", b"promptId", b"data"];

impl Head {
    /// Reads the object at the start of `row` and says how long it is.
    pub(crate) fn parse(&mut self, row: &[u8]) -> Result<usize, Bad> {
        let mut blocks = std::mem::take(&mut self.blocks);
        let mut odd = std::mem::take(&mut self.odd);
        blocks.clear();
        odd.clear();
        *self = Self { blocks, odd, ..Self::default() };
        let mut scanner = Scanner::new(row);
        scanner.object(|s, key| {
            match key {
                b"type" => {
                    self.type_name = s.maybe_string()?;
                    self.kind = self.type_name.map_or(RowKind::Other, |name| RowKind::of(name.of(row)));
                }
                b"subtype" => self.subtype = s.maybe_string()?,
                b"uuid" => self.uuid = s.maybe_string()?,
                b"parentUuid" => {
                    self.parent = match s.maybe_string()? {
                        Some(id) => Parent::Row(id),
                        None => Parent::Null,
                    }
                }
                b"logicalParentUuid" => self.logical_parent = s.maybe_string()?,
                b"sessionId" => self.session = s.maybe_string()?,
                b"timestamp" => self.timestamp = s.maybe_string()?,
                b"version" => self.version = s.maybe_string()?,
                b"isSidechain" => self.is_sidechain = s.is_true()?,
                b"isMeta" => self.is_meta = s.is_true()?,
                b"isCompactSummary" => self.is_compact_summary = s.is_true()?,
                b"isVisibleInTranscriptOnly" => self.is_visible_only = s.is_true()?,
                b"isApiErrorMessage" => self.is_api_error = s.is_true()?,
                b"isSynthetic" => self.is_synthetic_input = s.is_true()?,
                b"apiErrorStatus" => self.api_error_status = s.maybe_number()?,
                b"apiBlockIndex" => self.api_block_index = s.maybe_number()?,
                b"planContent" => self.has_plan_content = s.maybe_string()?.is_some_and(|p| p.len() > 0),
                b"permissionMode" | b"thinkingMetadata" | b"todos" => {
                    self.is_typed = true;
                    s.pass()?;
                }
                b"origin" => self.origin_kind = kind_of_origin(s)?,
                b"promptSource" => self.prompt_source = s.maybe_string()?,
                b"turnOrigin" => self.turn_origin = s.maybe_string()?,
                b"rowSource" => self.row_source = s.maybe_string()?,
                b"mergedSendUuids" => self.merged_sends = Some(s.skip()?),
                b"toolUseResult" => self.tool_use_result = Some(s.skip()?),
                b"message" => self.parse_message(s, row)?,
                b"attachment" => self.parse_attachment(s, row)?,
                b"rendered" => self.rendered = Some(s.skip()?),
                b"operation" => self.operation = s.maybe_string()?,
                b"content" => self.row_content = s.maybe_string()?,
                b"leafUuid" => self.leaf = s.maybe_string()?,
                b"lastPrompt" => self.last_prompt = s.maybe_string()?,
                b"kael" => self.kael = parse_kael(s)?,
                _ if COMMON.contains(&key) => s.pass()?,
                _ => odd_field(Level::Row, key, s, row, &mut self.odd)?,
            }
            Ok(())
        })?;
        Ok(scanner.pos())
    }

    fn parse_message(&mut self, s: &mut Scanner<'_>, row: &[u8]) -> Result<(), Bad> {
        if s.peek() != Some(b'{') {
            self.message = Some(s.skip()?);
            return Ok(());
        }
        let whole = s.object(|s, key| {
            match key {
                b"id" => self.message_id = s.maybe_string()?,
                b"role" => self.role = s.maybe_string()?,
                b"model" => self.model = s.maybe_string()?,
                b"stop_reason" => self.stop_reason = s.maybe_string()?,
                b"usage" => self.usage = parse_usage(s)?,
                b"content" => {
                    self.blocks.clear();
                    self.content = parse_content(s, row, &mut self.blocks, &mut self.odd)?;
                }
                _ => odd_field(Level::Message, key, s, row, &mut self.odd)?,
            }
            Ok(())
        })?;
        self.message = Some(whole);
        Ok(())
    }

    fn parse_attachment(&mut self, s: &mut Scanner<'_>, row: &[u8]) -> Result<(), Bad> {
        if s.peek() != Some(b'{') {
            self.attachment = Some(s.skip()?);
            return Ok(());
        }
        let whole = s.object(|s, key| {
            match key {
                b"type" => self.attachment_type = s.maybe_string()?,
                b"prompt" => {
                    self.blocks.clear();
                    self.prompt = parse_content(s, row, &mut self.blocks, &mut self.odd)?;
                }
                b"commandMode" => self.command_mode = s.maybe_string()?,
                b"source_uuid" => self.source_uuid = s.maybe_string()?,
                b"origin" => self.attachment_origin = kind_of_origin(s)?,
                _ => odd_field(Level::Attachment, key, s, row, &mut self.odd)?,
            }
            Ok(())
        })?;
        self.attachment = Some(whole);
        Ok(())
    }

    /// Whether a field's text, where the field is there, is exactly this.
    pub(crate) fn is(field: Option<Span>, row: &[u8], text: &str) -> bool {
        field.is_some_and(|span| span.of(row) == text.as_bytes())
    }
}

fn kind_of_origin(s: &mut Scanner<'_>) -> Result<Option<Span>, Bad> {
    let mut kind = None;
    if s.peek() == Some(b'{') {
        s.object(|s, key| {
            if key == b"kind" {
                kind = s.maybe_string()?;
            } else {
                s.pass()?;
            }
            Ok(())
        })?;
    } else {
        s.skip()?;
    }
    Ok(kind)
}

fn parse_usage(s: &mut Scanner<'_>) -> Result<Option<UsageHead>, Bad> {
    if s.peek() != Some(b'{') {
        s.skip()?;
        return Ok(None);
    }
    let mut usage = UsageHead::default();
    s.object(|s, key| {
        match key {
            b"input_tokens" => usage.input = s.maybe_number()?.unwrap_or(0),
            b"cache_read_input_tokens" => usage.cache_read = s.maybe_number()?.unwrap_or(0),
            b"cache_creation_input_tokens" => usage.cache_creation = s.maybe_number()?.unwrap_or(0),
            b"output_tokens" => usage.output = s.maybe_number()?.unwrap_or(0),
            _ => s.pass()?,
        }
        Ok(())
    })?;
    Ok(Some(usage))
}

fn parse_kael(s: &mut Scanner<'_>) -> Result<Option<KaelHead>, Bad> {
    if s.peek() != Some(b'{') {
        s.skip()?;
        return Ok(None);
    }
    let mut kael = KaelHead::default();
    s.object(|s, key| {
        match key {
            b"source" => kael.source = s.maybe_string()?,
            b"kind" => kael.kind = s.maybe_string()?,
            b"time" => kael.time = s.maybe_string()?,
            b"stamp" => kael.stamp = s.maybe_number()?.unwrap_or(0),
            b"generation" => kael.generation = s.maybe_number()?.unwrap_or(0),
            b"cut" => kael.cut = s.is_true()?,
            b"timeless" => kael.timeless = s.is_true()?,
            _ => s.pass()?,
        }
        Ok(())
    })?;
    Ok(Some(kael))
}

/// Passes over a field and notes it if its value may hold text. A key that is not spelt as it stands
/// in the row (with escapes) is noted by where its value is.
fn odd_field(
    level: Level,
    key: &[u8],
    s: &mut Scanner<'_>,
    row: &[u8],
    odd: &mut Vec<Odd>,
) -> Result<(), Bad> {
    let text = matches!(s.peek(), Some(b'"' | b'{' | b'['));
    let value = s.skip()?;
    if text && value.len() > 8 && odd.len() < 64 {
        // The key stands right in front of its value.
        let front = row.get(..value.start as usize).unwrap_or_default();
        let at = memchr::memmem::rfind(front, key).unwrap_or(value.start as usize);
        odd.push(Odd { level, key: Span::new(at, (at + key.len()).min(front.len())), value });
    }
    Ok(())
}

fn parse_content(
    s: &mut Scanner<'_>,
    row: &[u8],
    blocks: &mut Vec<Block>,
    odd: &mut Vec<Odd>,
) -> Result<Content, Bad> {
    match s.peek() {
        Some(b'"') => s.string().map(Content::Text),
        Some(b'[') => {
            s.array(|s| {
                let at = u16::try_from(blocks.len()).unwrap_or(u16::MAX);
                blocks.push(parse_block(s, row, at, odd)?);
                Ok(())
            })?;
            Ok(Content::Blocks)
        }
        _ => s.skip().map(Content::Odd),
    }
}

fn parse_block(s: &mut Scanner<'_>, row: &[u8], at: u16, odd: &mut Vec<Odd>) -> Result<Block, Bad> {
    let mut block = Block::default();
    if s.peek() != Some(b'{') {
        block.whole = s.skip()?;
        return Ok(block);
    }
    block.whole = s.object(|s, key| {
        match key {
            b"type" => {
                block.name = s.maybe_string()?;
                block.kind = match block.name.map_or(&b""[..], |name| name.of(row)) {
                    b"text" => BlockKind::Text,
                    b"thinking" | b"redacted_thinking" => BlockKind::Thinking,
                    b"tool_use" => BlockKind::ToolUse,
                    b"tool_result" => BlockKind::ToolResult,
                    b"image" => BlockKind::Image,
                    b"document" => BlockKind::Document,
                    _ => BlockKind::Other,
                };
            }
            b"text" => block.text = s.maybe_string()?,
            b"id" | b"tool_use_id" => block.id = s.maybe_string()?,
            b"name" => block.tool = s.maybe_string()?,
            b"input" => block.input = Some(s.skip()?),
            b"content" => {
                let (span, images) = parse_result_content(s, row)?;
                block.content = Some(span);
                block.images = images;
            }
            b"source" => block.source = Some(s.skip()?),
            b"is_error" => block.is_error = s.is_true()?,
            b"thinking" | b"signature" | b"data" => s.pass()?,
            _ => odd_field(Level::Block(at), key, s, row, odd)?,
        }
        Ok(())
    })?;
    Ok(block)
}

/// A tool_result's content, and how many images are in it.
fn parse_result_content(s: &mut Scanner<'_>, row: &[u8]) -> Result<(Span, u32), Bad> {
    if s.peek() != Some(b'[') {
        return Ok((s.skip()?, 0));
    }
    let mut images = 0;
    let span = s.array(|s| {
        if s.peek() != Some(b'{') {
            s.skip()?;
            return Ok(());
        }
        s.object(|s, key| {
            if key == b"type" {
                images += u32::from(s.maybe_string()?.is_some_and(|name| name.of(row) == b"image"));
            } else {
                s.skip()?;
            }
            Ok(())
        })?;
        Ok(())
    })?;
    Ok((span, images))
}
