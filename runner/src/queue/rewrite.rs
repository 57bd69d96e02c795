//! Words taken out of everything that is stored, whatever table it stands in: nothing is left out because a table is new.

use std::collections::HashSet;

use rusqlite::types::Value as Stored;
use rusqlite::{Connection, Transaction, params_from_iter};

use super::{Queue, QueueError};

/// A text without the words, if they stand in it. The flag: it belongs to something that is meant as a whole.
pub type Without<'a> = &'a dyn Fn(&[u8], bool) -> Option<Vec<u8>>;

struct Table {
    name: String,
    /// What names a row.
    key: Vec<String>,
    columns: Vec<String>,
}

impl Queue {
    /// Rewrites every text that `without` changes, in one transaction, and lets nothing of the old pages stay in the file.
    /// `is_there` tells which rows of transcripts, and messages in them, are meant as a whole. With `only_count` nothing
    /// is changed. Returns how many values hold the words.
    pub fn rewrite(
        &mut self,
        without: Without<'_>,
        is_there: &dyn Fn(&str) -> bool,
        only_count: bool,
    ) -> Result<u64, QueueError> {
        let count = self.transaction("forget words", |t| {
            let turns = turns_meant(t, is_there)?;
            let mut count = 0;
            for table in tables(t)? {
                count += rewrite_table(t, &table, without, &turns, is_there, only_count)?;
            }
            Ok(count)
        })?;
        if !only_count {
            self.doing("overwrite what was forgotten", |c| {
                c.pragma_update(None, "secure_delete", true)?;
                c.execute_batch("VACUUM")?;
                c.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            })?;
        }
        Ok(count)
    }
}

/// Turns whose messages' rows are meant.
fn turns_meant(c: &Connection, is_there: &dyn Fn(&str) -> bool) -> rusqlite::Result<HashSet<i64>> {
    let mut turns = HashSet::new();
    let mut statement = c.prepare("SELECT turn, row_uuid FROM invocations")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if is_there(row.get_ref(1)?.as_str()?) {
            turns.insert(row.get(0)?);
        }
    }
    Ok(turns)
}

fn tables(c: &Connection) -> rusqlite::Result<Vec<Table>> {
    let mut all = Vec::new();
    let names: Vec<(String, bool)> = c
        .prepare("SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%'")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (name, without_rowid) in names {
        let columns: Vec<(String, i64)> = c
            .prepare("SELECT name, pk FROM pragma_table_info(?1)")?
            .query_map([&name], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let key = if without_rowid {
            columns.iter().filter(|(_, pk)| *pk > 0).map(|(name, _)| name.clone()).collect()
        } else {
            vec!["rowid".to_owned()]
        };
        all.push(Table { name, key, columns: columns.into_iter().map(|(name, _)| name).collect() });
    }
    Ok(all)
}

fn rewrite_table(
    t: &Transaction<'_>,
    table: &Table,
    without: Without<'_>,
    turns: &HashSet<i64>,
    is_there: &dyn Fn(&str) -> bool,
    only_count: bool,
) -> rusqlite::Result<u64> {
    let quoted =
        |names: &[String]| names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    let keys = if table.key == ["rowid"] { "rowid".to_owned() } else { quoted(&table.key) };
    let mut statement =
        t.prepare(&format!("SELECT {keys}, {} FROM \"{}\"", quoted(&table.columns), table.name))?;
    let mut rows = statement.query([])?;
    let mut changes: Vec<(Vec<Stored>, &str, Stored)> = Vec::new();
    while let Some(row) = rows.next()? {
        let key: Vec<Stored> = (0..table.key.len()).map(|at| row.get(at)).collect::<rusqlite::Result<_>>()?;
        let value = |name: &str| {
            let at = table.columns.iter().position(|column| column == name)?;
            row.get::<_, Stored>(table.key.len() + at).ok()
        };
        let turn = value(if table.name == "turns" { "id" } else { "turn" });
        let message = value("message_id");
        let there = matches!(turn, Some(Stored::Integer(turn)) if turns.contains(&turn))
            || matches!(message, Some(Stored::Text(id)) if is_there(&id));
        for (at, column) in table.columns.iter().enumerate() {
            let old: Stored = row.get(table.key.len() + at)?;
            let new = match &old {
                Stored::Text(text) => {
                    let new = without(text.as_bytes(), there);
                    new.and_then(|new| String::from_utf8(new).ok()).map(Stored::Text)
                }
                Stored::Blob(bytes) => without(bytes, there).map(Stored::Blob),
                Stored::Null | Stored::Integer(_) | Stored::Real(_) => None,
            };
            if let Some(new) = new {
                changes.push((key.clone(), column, new));
            }
        }
    }
    drop(rows);
    let count = changes.len() as u64;
    for (key, column, new) in changes.into_iter().filter(|_| !only_count) {
        let named: Vec<String> = table
            .key
            .iter()
            .enumerate()
            .map(|(at, name)| {
                let name = if name == "rowid" { name.clone() } else { format!("\"{name}\"") };
                format!("{name} = ?{}", at + 2)
            })
            .collect();
        let sql = format!("UPDATE \"{}\" SET \"{column}\" = ?1 WHERE {}", table.name, named.join(" AND "));
        t.execute(&sql, params_from_iter(std::iter::once(new).chain(key)))?;
    }
    Ok(count)
}
