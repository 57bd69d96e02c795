//! The reader's events, and the leaf the CLI would continue from.

use std::io::Read;
use std::path::Path;

use serde_json::json;

use super::reader::{Event, MAX_LINE, Reader};
use super::*;
use crate::fixture::{Script, uuid};

fn events(input: impl Read) -> (Vec<String>, u64) {
    let mut all = Vec::new();
    let (end, _) = Reader::new(input, Path::new("x"))
        .run(|event| {
            all.push(match event {
                Event::Row { place, bytes, around, .. } => {
                    format!("row {}@{}+{} around {around}", place.line, place.offset, bytes.len())
                }
                Event::Incomplete => return Ok(()),
                Event::Blank { bytes } => format!("blank {bytes}"),
                Event::Damage(d) => format!("{:?} {}@{}+{}", d.kind, d.line, d.offset, d.bytes),
            });
            Ok(())
        })
        .unwrap();
    (all, end.offset)
}

#[test]
fn damage_is_a_value_with_its_line() {
    let case = |bytes: &[u8]| events(bytes).0;
    assert_eq!(case(b""), Vec::<String>::new());
    assert_eq!(case(b"{}\n{}\n"), ["row 1@0+2 around 1", "row 2@3+2 around 1"]);
    assert_eq!(case(b"{}"), ["NoFinalNewline 1@2+0", "row 1@0+2 around 0"]);
    assert_eq!(case(b"{}\n{\"a\":\"\xe9"), ["row 1@0+2 around 1", "blank 0", "TornTail 2@3+7"]);
    assert_eq!(case(b"{\"a\":\n{}\n"), ["blank 0", "NotJson 1@0+6", "row 2@6+2 around 1"]);
    assert_eq!(
        case(b"\xef\xbb\xbf{}\r\n"),
        ["ByteOrderMark 1@0+3", "CarriageReturn 1@5+0", "row 1@3+2 around 2"]
    );
    assert_eq!(case(b"\0\0{}\n\0\0\n"), ["Nul 1@0+2", "row 1@2+2 around 1", "Nul 2@5+2", "blank 1"]);
    assert_eq!(case(b"{} {}\n"), ["row 1@0+2 around 0", "GluedRows 1@3+0", "row 1@3+2 around 2"]);
    assert_eq!(case(b"{}{\n"), ["row 1@0+2 around 0", "blank 0", "NotJson 1@2+2"]);
    assert_eq!(
        case(b"null\n5\n[]\n"),
        ["blank 0", "EmptyValue 1@0+5", "blank 0", "EmptyValue 2@5+2", "blank 0", "EmptyValue 3@7+3"]
    );
    assert_eq!(case(b"[1]\n\"x\"\n"), ["blank 0", "NotARow 1@0+4", "blank 0", "NotARow 2@4+4"]);
    assert_eq!(case(b"{\"a\":\"\0\"}\n"), ["blank 0", "NotJson 1@0+10"], "a raw NUL inside a string");
}

#[test]
fn a_line_that_is_too_long_is_passed_over_in_bounded_memory() {
    let long = MAX_LINE as u64 + 1000;
    let input = std::io::repeat(b'x').take(long).chain(&b"\n{}\n"[..]);
    let (all, size) = events(input);
    assert_eq!(size, long + 4);
    assert_eq!(all, [format!("TooLong 1@0+{}", long + 1), format!("row 2@{}+2 around 1", long + 1)]);
}

#[test]
fn rows_are_read_whole_however_the_input_comes() {
    struct Slow<'a>(&'a [u8]);
    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let count = self.0.len().min(7).min(out.len());
            out[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }
    let mut script = Script::new();
    for turn in 0..50 {
        script.human(&"风".repeat(turn));
        script.says("ok");
    }
    assert_eq!(events(Slow(script.bytes())), events(script.bytes()));
}

/// The line of the row that the CLI would continue from.
fn leaf(script: &Script) -> u64 {
    let (rules, own) = (ExtractRules::default(), OwnRows::default());
    let context = judge::Context { rules: &rules, own: &own };
    let mut survey = survey::Survey::of(&script.file().path, context).unwrap();
    let leaf = survey.leaf().unwrap();
    survey.index.get(leaf).unwrap().line()
}

/// One answered turn and two branches from its answer: lines 3, 4 and 5, 6.
fn branches() -> Script {
    let mut script = Script::new();
    script.human("seed");
    let answer = script.says("yes");
    script.human("x");
    script.says("X");
    script.on(&answer).human("y");
    script.says("Y");
    script
}

#[test]
fn the_leaf_is_the_one_the_cli_takes() {
    let mut script = branches();
    assert_eq!(leaf(&script), 6, "the last chain row");
    script.line(&json!({"type": "summary", "summary": "X", "leafUuid": uuid(4)}));
    assert_eq!(leaf(&script), 6, "a summary's leaf is ignored");
    script.last_prompt("x", &uuid(4));
    assert_eq!(leaf(&script), 4, "a last-prompt decides");
    script.last_prompt("y", &uuid(6));
    assert_eq!(leaf(&script), 6, "the last one");
    script.last_prompt("z", &uuid(99));
    assert_eq!(leaf(&script), 6, "one that names no row does not count");
    script.last_prompt("x", &uuid(3));
    assert_eq!(leaf(&script), 4, "the newest tip below it");
    script.last_prompt("x", &uuid(1));
    assert_eq!(leaf(&script), 6);
    let mut attached = branches();
    attached.on(&uuid(4)).attachment(json!({"type": "date", "date": "2026-11-30"}));
    attached.line(&json!({"type": "mode", "mode": "normal"}));
    assert_eq!(leaf(&attached), 7, "an attachment is a chain row");
}

#[test]
fn a_circle_of_parents_ends() {
    let mut script = Script::new();
    script.row(json!({"type": "user", "uuid": "a", "parentUuid": "b", "message": {"role": "user", "content": "one"}}));
    script.row(json!({"type": "user", "uuid": "b", "parentUuid": "a", "message": {"role": "user", "content": "two"}}));
    let (rules, own) = (ExtractRules::default(), OwnRows::default());
    let context = judge::Context { rules: &rules, own: &own };
    let mut survey = survey::Survey::of(&script.file().path, context).unwrap();
    let chain = survey.chain().unwrap();
    assert_eq!((chain.rows.len(), chain.cycles.len()), (2, 1));
}
