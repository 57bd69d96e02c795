//! The transcript file: loading, the choice of the leaf, the chain, and appending (facts 1-4).

use std::collections::{HashMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// One session and where its next row hangs.
pub(super) struct Session {
    pub(super) id: String,
    path: PathBuf,
    cwd: PathBuf,
    rows: Vec<Value>,
    /// Chain rows by uuid; a later row with the same uuid replaces the earlier one.
    index: HashMap<String, usize>,
    pub(super) leaf: Option<String>,
    /// What the bookkeeping rows repeat.
    pub(super) last_prompt: String,
    pub(super) total_cost: f64,
    /// Rows are kept in memory alone: a quirk.
    pub(super) mute: bool,
}

impl Session {
    /// A session that has no file yet.
    pub(super) fn create(project: &Path, cwd: &Path, id: String) -> Self {
        Self {
            path: project.join(format!("{id}.jsonl")),
            cwd: cwd.to_owned(),
            id,
            rows: Vec::new(),
            index: HashMap::new(),
            leaf: None,
            last_prompt: String::new(),
            total_cost: 0.0,
            mute: false,
        }
    }

    /// Loads a session, from whatever project it was written for. `None` when there is no such file or
    /// nothing in it that could be resumed.
    pub(super) fn load(projects: &Path, cwd: &Path, id: &str) -> io::Result<Option<Self>> {
        let name = format!("{id}.jsonl");
        let here = projects.join(super::run::project_name(cwd)).join(&name);
        let elsewhere = || {
            let folders = fs::read_dir(projects).ok()?;
            folders.filter_map(|f| Some(f.ok()?.path().join(&name))).find(|path| path.is_file())
        };
        let Some(path) = Some(here).filter(|path| path.is_file()).or_else(elsewhere) else {
            return Ok(None);
        };
        let bytes = fs::read(&path)?;
        let mut session = Self::create(Path::new(""), cwd, id.to_owned());
        session.path = path;
        for line in String::from_utf8_lossy(&bytes).split('\n') {
            // Two objects may stand on one line (facts 4); a torn one ends its line.
            for row in serde_json::Deserializer::from_str(line).into_iter::<Value>().map_while(Result::ok) {
                session.remember(row);
            }
        }
        session.leaf = session.choose_leaf();
        let spoken = session.chain().iter().any(|row| row["type"] == "user" || row["type"] == "assistant");
        Ok(spoken.then_some(session))
    }

    /// A new session that begins with the live chain of this one.
    pub(super) fn fork(&self, project: &Path, id: String) -> io::Result<Self> {
        let mut fork = Self::create(project, &self.cwd, id);
        for row in self.chain() {
            let mut row = row.clone();
            row["sessionId"] = json!(fork.id);
            fork.leaf = row["uuid"].as_str().map(str::to_owned);
            fork.append(row)?;
        }
        Ok(fork)
    }

    /// Whether the file is already there.
    pub(super) fn exists(&self) -> bool {
        self.path.exists()
    }

    fn remember(&mut self, row: Value) {
        if is_chain(&row)
            && let Some(uuid) = row["uuid"].as_str()
        {
            self.index.insert(uuid.to_owned(), self.rows.len());
        }
        if row["type"] == "last-prompt"
            && let Some(prompt) = row["lastPrompt"].as_str()
        {
            self.last_prompt = prompt.to_owned();
        }
        if let Some(cost) = row["totalCostUSD"].as_f64() {
            self.total_cost = cost;
        }
        self.rows.push(row);
    }

    /// The last `last-prompt` row that names a known row decides: the newest tip below it. Without one
    /// the last chain row of the file is the leaf.
    fn choose_leaf(&self) -> Option<String> {
        let named = self.rows.iter().rev().find_map(|row| {
            let uuid = row["leafUuid"].as_str().filter(|_| row["type"] == "last-prompt")?;
            self.index.contains_key(uuid).then_some(uuid)
        });
        let mut live: Vec<(&str, usize)> = self.index.iter().map(|(u, at)| (u.as_str(), *at)).collect();
        live.sort_by_key(|(_, at)| *at);
        let Some(named) = named else {
            return live.last().map(|(uuid, _)| (*uuid).to_owned());
        };
        let below = |uuid: &str| self.ancestry(uuid).iter().any(|row| row["uuid"] == named);
        live.iter().rev().find(|(uuid, _)| below(uuid)).map(|(uuid, _)| (*uuid).to_owned())
    }

    /// From the row up to its root.
    fn ancestry(&self, uuid: &str) -> Vec<&Value> {
        let mut seen = HashSet::new();
        let mut rows = Vec::new();
        let mut next = Some(uuid);
        while let Some(uuid) = next.filter(|uuid| seen.insert((*uuid).to_owned())) {
            let Some(row) = self.row(uuid) else { break };
            rows.push(row);
            next = row["parentUuid"].as_str();
        }
        rows
    }

    /// The live chain from its root to the leaf. A message with several tool calls does not stand in one
    /// line: calls and results that hang beside it are put where they belong, if one result is on the
    /// chain. A chain that goes on from a call without one has its results on another branch.
    pub(super) fn chain(&self) -> Vec<&Value> {
        let Some(leaf) = self.leaf.as_deref() else { return Vec::new() };
        let mut chain = self.ancestry(leaf);
        chain.reverse();
        let on_chain: HashSet<&str> = chain.iter().filter_map(|row| row["uuid"].as_str()).collect();
        let mut whole = Vec::with_capacity(chain.len());
        for (at, row) in chain.iter().enumerate() {
            whole.push(*row);
            let message = message_id(row);
            let next = chain.get(at + 1);
            if let (Some(message), Some(next)) = (message, next)
                && is_result(next)
            {
                whole.extend(
                    self.beside(message)
                        .filter(|row| row["uuid"].as_str().is_some_and(|uuid| !on_chain.contains(uuid))),
                );
            }
        }
        whole
    }

    /// All rows of a message, then the results of its tool calls.
    fn beside<'a>(&'a self, message: &'a str) -> impl Iterator<Item = &'a Value> {
        let parts: Vec<&Value> = self.rows.iter().filter(|row| message_id(row) == Some(message)).collect();
        let calls: HashSet<&str> = parts.iter().filter_map(|row| row["uuid"].as_str()).collect();
        let results = self.rows.iter().filter(move |row| {
            is_result(row) && row["parentUuid"].as_str().is_some_and(|parent| calls.contains(parent))
        });
        parts.into_iter().chain(results)
    }

    /// A chain row by its uuid.
    pub(super) fn row(&self, uuid: &str) -> Option<&Value> {
        self.index.get(uuid).and_then(|at| self.rows.get(*at))
    }

    /// Chain rows that hang on this one.
    pub(super) fn children<'a>(&'a self, uuid: &'a str) -> impl Iterator<Item = &'a Value> {
        self.rows.iter().filter(move |row| is_chain(row) && row["parentUuid"] == uuid)
    }

    /// Appends a row to the chain and returns its uuid: the one it brings, or a fresh one.
    ///
    /// # Errors
    /// The file could not be written.
    pub(super) fn push(&mut self, mut row: Value) -> io::Result<String> {
        let uuid = row["uuid"].as_str().map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned);
        let parent = row.get("parentUuid").cloned().unwrap_or_else(|| json!(self.leaf));
        let mut full = json!({"parentUuid": parent, "isSidechain": false});
        row["uuid"] = json!(uuid);
        for (key, value) in row.as_object().into_iter().flatten() {
            full[key] = value.clone();
        }
        for (key, value) in [
            ("timestamp", json!(now())),
            ("userType", json!("external")),
            ("entrypoint", json!("sdk-cli")),
            ("cwd", json!(self.cwd)),
            ("sessionId", json!(self.id)),
            ("version", json!(super::VERSION)),
            ("gitBranch", json!("HEAD")),
        ] {
            full[key] = value;
        }
        self.leaf = Some(uuid.clone());
        self.append(full)?;
        Ok(uuid)
    }

    /// Appends a row that is no part of the chain.
    ///
    /// # Errors
    /// The file could not be written.
    pub(super) fn note(&mut self, mut row: Value) -> io::Result<()> {
        row["sessionId"] = json!(self.id);
        self.append(row)
    }

    /// What stands at the end of every turn.
    ///
    /// # Errors
    /// The file could not be written.
    pub(super) fn bookkeeping(&mut self) -> io::Result<()> {
        self.note(json!({"type": "last-prompt", "lastPrompt": self.last_prompt, "leafUuid": self.leaf}))?;
        self.note(json!({"type": "mode", "mode": "normal"}))?;
        self.note(
            json!({"type": "cost-state", "totalCostUSD": self.total_cost, "hasUnknownModelCost": false}),
        )
    }

    /// Opened anew for every row, as the CLI does: a file that was moved away is begun anew.
    fn append(&mut self, row: Value) -> io::Result<()> {
        if self.mute {
            self.remember(row);
            return Ok(());
        }
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = OpenOptions::new().append(true).read(true).create(true).open(&self.path)?;
        let mut line = format!("{row}\n");
        if file.seek(SeekFrom::End(0))? > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                line.insert(0, '\n');
            }
        }
        file.write_all(line.as_bytes())?;
        self.remember(row);
        Ok(())
    }
}

fn is_chain(row: &Value) -> bool {
    row["isSidechain"] != true
        && matches!(row["type"].as_str(), Some("user" | "assistant" | "attachment" | "system"))
}

/// The id of the message that an assistant row is a part of.
fn message_id(row: &Value) -> Option<&str> {
    row["message"]["id"].as_str().filter(|_| row["type"] == "assistant")
}

/// Whether a row carries the result of a tool.
pub(super) fn is_result(row: &Value) -> bool {
    row["type"] == "user"
        && row["message"]["content"]
            .as_array()
            .is_some_and(|blocks| blocks.iter().any(|block| block["type"] == "tool_result"))
}

/// Whether a row was written by the runtime in the model's place.
pub(super) fn is_api_error(row: &Value) -> bool {
    row["isApiErrorMessage"] == true && row["message"]["model"] == "<synthetic>"
}

/// The present instant as transcripts write it.
pub(super) fn now() -> String {
    use kael_core::clock::Clock;
    kael_core::clock::SystemClock.now().to_string()
}
