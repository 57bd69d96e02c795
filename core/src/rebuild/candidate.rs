//! The candidate: the plan's items as rows that every supported CLI resumes (facts 1).

use std::io::{BufRead, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::disk::Disk;
use crate::transcript::head::Head;
use crate::transcript::json::decode;
use crate::transcript::media::hex;
use crate::transcript::rows::Rows;
use crate::transcript::speech;
use crate::transcript::{ItemKind, Role};

use super::error::RebuildError;
use super::items::PlannedItem;
use super::plan::Plan;
use super::words::{self, Injected};

/// The model of an assistant item when the transcript names none at all. The CLI accepts it and asks
/// its default model; without any name a version hangs (facts 1).
const NO_MODEL: &str = "<synthetic>";

/// A written candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidateFile {
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// Its length in bytes.
    pub len: u64,
    /// How many rows it has.
    pub rows: u64,
    /// The uuid of its first row.
    pub root_uuid: Option<String>,
    /// The uuid of its last row.
    pub last_uuid: Option<String>,
    /// One entry a row.
    pub manifest: Vec<ManifestEntry>,
}

/// Where a row of a candidate comes from (DESIGN 7). It holds no speech.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestEntry {
    /// The row's place, counted from 0.
    pub position: u64,
    /// `user` or `assistant`.
    pub role: String,
    /// The source's identity: its row's uuid, or our mark's source where it came from a candidate.
    pub source_uuid: String,
    /// The source's time, where it had one.
    pub source_timestamp: Option<String>,
    /// SHA-256 of what the source says: its only text, or all its texts with a NUL after each.
    pub source_sha256: String,
    /// SHA-256 of what the candidate says, in the same form.
    pub injected_sha256: String,
    /// The row's uuid.
    pub item_id: String,
}

#[derive(Serialize)]
struct Row<'a> {
    #[serde(rename = "parentUuid")]
    parent: Option<&'a str>,
    #[serde(rename = "isSidechain")]
    is_sidechain: bool,
    #[serde(rename = "type")]
    kind: &'static str,
    message: Message<'a>,
    uuid: &'a str,
    timestamp: &'a str,
    #[serde(rename = "sessionId")]
    session: String,
    kael: Mark<'a>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    content: Body<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Body<'a> {
    Text(&'a str),
    Blocks(Vec<TextBlock<'a>>),
}

#[derive(Serialize)]
struct TextBlock<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

/// Our mark: what a later rebuild needs to recover the source exactly.
#[derive(Serialize)]
struct Mark<'a> {
    operation: Option<String>,
    source: &'a str,
    stamp: usize,
    generation: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    /// The source's time where the row's own had to be moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
}

/// Writes a plan's candidate to a new file, 0600, durably. The source must be the one the plan was made from. Blocking.
///
/// # Errors
///
/// When the source cannot be read any more, or the file exists or cannot be written.
pub fn write_candidate(
    disk: &Disk,
    plan: &Plan,
    source: &Path,
    out: &Path,
) -> Result<CandidateFile, RebuildError> {
    let mut done = None;
    let written =
        disk.write_through(out, &mut |writer| match write_candidate_to(plan, source, out, writer) {
            Ok(file) => {
                done = Some(Ok(file));
                Ok(())
            }
            // Of the disk itself is what the step tells; the rest is told below.
            Err(RebuildError::Io { source, .. }) => Err(source),
            Err(error) => {
                done = Some(Err(error));
                Err(std::io::Error::other("the candidate could not be made"))
            }
        });
    match (written, done) {
        (_, Some(Err(error))) => Err(error),
        (Err(source), _) => Err(RebuildError::Disk { source }),
        (Ok(()), Some(Ok(file))) => Ok(file),
        (Ok(()), None) => {
            Err(RebuildError::Differs { path: out.to_owned(), what: "nothing was written".to_owned() })
        }
    }
}

/// Writes a plan's candidate anywhere; `out` is only its name in errors. Neither flushes nor syncs.
///
/// # Errors
///
/// When the source cannot be read any more, or the writer fails.
pub fn write_candidate_to(
    plan: &Plan,
    source: &Path,
    out: &Path,
    writer: &mut dyn Write,
) -> Result<CandidateFile, RebuildError> {
    let mut rows = Rows::open(source)?;
    let mut models = Models::of(plan, &mut rows)?;
    let mut times = Times::of(plan, &mut rows)?;
    let mut file = CandidateFile {
        sha256: String::new(),
        len: 0,
        rows: 0,
        root_uuid: None,
        last_uuid: None,
        manifest: Vec::with_capacity(plan.items.len()),
    };
    let mut hasher = Sha256::new();
    let mut parent: Option<String> = None;
    for (position, item) in plan.items.iter().enumerate() {
        let (bytes, head) = rows.at(item.offset, item.length as usize)?;
        let identity = identity(item, bytes, head);
        let Injected { blocks, stamp } = words::injected(item, bytes, head);
        // A marker has no time of its own, in no generation.
        let time = if item.kind == ItemKind::OpenTail { None } else { words::time(bytes, head) };
        let timestamp = times.next(time.as_deref());
        let id =
            Uuid::new_v5(plan.new_session.as_uuid(), format!("{position}:{identity}").as_bytes()).to_string();
        let model = (item.role == Role::Assistant).then(|| models.next(item, bytes, head));
        let row = Row {
            parent: parent.as_deref(),
            is_sidechain: false,
            kind: words::row_type(item.role),
            message: Message {
                role: words::row_type(item.role),
                model: model.as_deref(),
                content: body(item, &blocks),
            },
            uuid: &id,
            timestamp: &timestamp,
            session: plan.new_session.to_string(),
            kael: Mark {
                operation: plan.operation.map(|id| id.to_string()),
                source: &identity,
                stamp,
                generation: item.generation,
                kind: item.kind.mark(),
                time: time.as_deref().filter(|time| *time != timestamp),
                cut: item.keep_chars > 0 || head.kael.is_some_and(|kael| kael.cut && !item.is_new_marker),
            },
        };
        let mut line =
            serde_json::to_vec(&row).map_err(|source| RebuildError::Json { path: out.to_owned(), source })?;
        line.push(b'\n');
        hasher.update(&line);
        writer.write_all(&line).map_err(RebuildError::io(out, "write"))?;
        file.len += line.len() as u64;
        file.rows += 1;
        let said = words::source_texts(item, bytes, head).blocks;
        file.manifest.push(ManifestEntry {
            position: position as u64,
            role: words::row_type(item.role).to_owned(),
            source_uuid: identity,
            source_timestamp: time.map(|time| time.into_owned()),
            source_sha256: digest(&said),
            injected_sha256: digest(&blocks),
            item_id: id.clone(),
        });
        file.root_uuid.get_or_insert_with(|| id.clone());
        parent = Some(id);
    }
    file.last_uuid = parent;
    file.sha256 = hex(&hasher.finalize());
    Ok(file)
}

/// Speech goes in as the source has it: a string stays a string, blocks stay blocks. The assistant's
/// is always blocks; a string there stops most versions (facts 1).
fn body<'a>(item: &PlannedItem, blocks: &'a [String]) -> Body<'a> {
    match blocks {
        [only] if item.is_string && item.role == Role::Human => Body::Text(only),
        _ => Body::Blocks(blocks.iter().map(|text| TextBlock { kind: "text", text }).collect()),
    }
}

/// The source's identity (DESIGN 6).
pub(super) fn identity(item: &PlannedItem, row: &[u8], head: &Head) -> String {
    let base = speech::identity(row, head, item.kind, item.number);
    if item.is_new_marker {
        // It has no row; it is named after the one it stands behind.
        let before = speech::identity(row, head, ItemKind::Words, 0);
        return format!("{before}#open_tail");
    }
    base
}

/// SHA-256 of texts: of the only one, or of all with a NUL after each.
pub(super) fn digest(blocks: &[String]) -> String {
    let mut hasher = Sha256::new();
    match blocks {
        [only] => hasher.update(only.as_bytes()),
        all => {
            for text in all {
                hasher.update(text.as_bytes());
                hasher.update([0]);
            }
        }
    }
    hex(&hasher.finalize())
}

/// Takes the digests of a manifest anew from a candidate whose words were changed on purpose. Says whether any differ.
///
/// # Errors
/// When the candidate cannot be read.
pub fn redigest(manifest: &mut [ManifestEntry], candidate: &Path) -> Result<bool, RebuildError> {
    let file = std::fs::File::open(candidate).map_err(RebuildError::io(candidate, "open"))?;
    let mut changed = false;
    for line in std::io::BufReader::new(file).lines() {
        let line = line.map_err(RebuildError::io(candidate, "read"))?;
        let row: serde_json::Value = serde_json::from_str(&line)
            .map_err(|source| RebuildError::Json { path: candidate.to_owned(), source })?;
        let id = row["uuid"].as_str().unwrap_or_default();
        let Some(entry) = manifest.iter_mut().find(|entry| entry.item_id == id) else { continue };
        let mut blocks: Vec<String> = match &row["message"]["content"] {
            serde_json::Value::String(text) => vec![text.clone()],
            content => content
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|block| block["text"].as_str().map(str::to_owned))
                .collect(),
        };
        let injected = digest(&blocks);
        if injected == entry.injected_sha256 {
            continue;
        }
        let stamp = row["kael"]["stamp"].as_u64().and_then(|stamp| usize::try_from(stamp).ok()).unwrap_or(0);
        if let Some(first) = blocks.first_mut()
            && let Some(words) = first.get(stamp..)
        {
            *first = words.to_owned();
        }
        entry.injected_sha256 = injected;
        entry.source_sha256 = digest(&blocks);
        changed = true;
    }
    Ok(changed)
}

/// The model of each assistant item: its own, else that of the nearest one before it, else after it.
struct Models {
    last: Option<String>,
}

impl Models {
    fn of(plan: &Plan, rows: &mut Rows) -> Result<Self, RebuildError> {
        for item in plan.items.iter().filter(|item| item.role == Role::Assistant && !item.is_new_marker) {
            let (bytes, head) = rows.at(item.offset, item.length as usize)?;
            if let Some(model) = Self::named(bytes, head) {
                return Ok(Self { last: Some(model) });
            }
        }
        Ok(Self { last: None })
    }

    fn named(row: &[u8], head: &Head) -> Option<String> {
        let model = decode(head.model?.of(row)).text;
        (!model.trim().is_empty()).then(|| model.into_owned())
    }

    fn next(&mut self, item: &PlannedItem, row: &[u8], head: &Head) -> String {
        if !item.is_new_marker
            && let Some(model) = Self::named(row, head)
        {
            self.last = Some(model);
        }
        self.last.clone().unwrap_or_else(|| NO_MODEL.to_owned())
    }
}

/// Times of the rows: the source's, made strictly increasing, since a version takes the newest row
/// for the leaf and the first of equals (facts 1 and 4).
struct Times {
    last: Option<Timestamp>,
    /// Before the first row that has a time.
    floor: Timestamp,
}

impl Times {
    fn of(plan: &Plan, rows: &mut Rows) -> Result<Self, RebuildError> {
        for (position, item) in plan.items.iter().enumerate() {
            let (bytes, head) = rows.at(item.offset, item.length as usize)?;
            let time = words::time(bytes, head).and_then(|time| time.parse::<Timestamp>().ok());
            if let Some(time) = time {
                let before = i64::try_from(position).unwrap_or(i64::MAX).saturating_add(1);
                return Ok(Self {
                    last: None,
                    floor: Timestamp::from_millis(time.as_millis().saturating_sub(before)),
                });
            }
        }
        Ok(Self { last: None, floor: Timestamp::from_millis(0) })
    }

    fn next(&mut self, source: Option<&str>) -> String {
        let parsed = source.and_then(|time| time.parse::<Timestamp>().ok());
        let last = self.last.unwrap_or(self.floor);
        let (time, text) = match (parsed, source) {
            (Some(time), Some(text)) if time > last => (time, text.to_owned()),
            _ => {
                let time = Timestamp::from_millis(last.as_millis().saturating_add(1));
                (time, time.to_string())
            }
        };
        self.last = Some(time);
        text
    }
}
