//! What humans decided about single branches, rows and damaged places that block a rebuild (DESIGN 4): stored in the
//! queue's file, honoured by every later plan, and taken back by the answer `ask`.

use std::collections::BTreeMap;

use kael_core::clock::Timestamp;
use kael_core::rebuild::{BlockKind, Plan};
use kael_core::transcript::{Decision, Decisions, Fate};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cli::error::{CliError, ErrorKind};

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// What.
    pub answer: Decision,
    /// When.
    pub at: Timestamp,
    /// Whose.
    pub by: String,
}

/// All decisions, by what they are about: a branch (`<uuid>+<human rows>`), a row (`duplicate/<uuid>`), damaged places
/// (`damage/<count>@<seal>`), or a shape as `accept_unknown` takes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Decided(BTreeMap<String, Answer>);

/// What a human says on the command line: `WHAT=drop`, `carry`, `accept` or `ask`, or `damage=N`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// A decision about what has this key; nothing takes it back.
    About(String, Option<Decision>),
    /// So many places are lost.
    Damage(u64),
}

impl std::str::FromStr for Word {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (what, answer) = text.rsplit_once('=').filter(|(what, _)| !what.is_empty()).ok_or(
            "expected WHAT=drop, WHAT=carry, WHAT=accept, WHAT=ask or damage=N; `plan` names what there is",
        )?;
        let decision = match answer {
            "drop" => Some(Decision::Drop),
            "carry" => Some(Decision::Carry),
            "accept" => Some(Decision::Accept),
            "ask" => None,
            number if what == "damage" => {
                return number.parse().map(Self::Damage).map_err(|_| {
                    format!("damage={number}: expected how many places are lost, as `plan` says, or `ask`")
                });
            }
            other => return Err(format!("{other:?} is no answer: expected drop, carry, accept or ask")),
        };
        Ok(Self::About(what.to_owned(), decision))
    }
}

impl Decided {
    /// Shapes that a human accepted.
    pub fn accepted(&self) -> impl Iterator<Item = &str> {
        let accepted = self.0.iter().filter(|(_, answer)| answer.answer == Decision::Accept);
        accepted.map(|(what, _)| what.as_str())
    }

    /// As a plan takes them.
    #[must_use]
    pub fn decisions(&self) -> Decisions {
        self.0.iter().map(|(what, answer)| (what.clone(), answer.answer)).collect()
    }

    /// As JSON shows them.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let each = |(what, answer): (&String, &Answer)| json!({ "what": what, "answer": answer.answer, "at": answer.at, "by": answer.by });
        self.0.iter().map(each).collect()
    }

    /// A line each, for people.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0
            .iter()
            .map(|(what, answer)| format!("{what}={} ({}, {})", answer.answer.name(), answer.by, answer.at))
    }

    /// The changes that words mean for a plan: what has this key gets this decision, or loses its own.
    ///
    /// # Errors
    /// Refused when a word is about nothing of the plan, does not fit it, or names another count.
    pub fn changes(&self, words: &[Word], plan: &Plan) -> Result<Vec<(String, Option<Decision>)>, CliError> {
        words.iter().map(|word| self.change(word, plan)).collect()
    }

    fn change(&self, said: &Word, plan: &Plan) -> Result<(String, Option<Decision>), CliError> {
        let open = |what: &str| plan.blocked.iter().find(|blocked| blocked.key.as_deref() == Some(what));
        let refused =
            |text: String| Err(CliError::new(ErrorKind::Refused, format!("{text}: nothing was decided")));
        match said {
            Word::Damage(count) => {
                let damage = plan.blocked.iter().find(|blocked| blocked.kind == BlockKind::Damage);
                let Some(key) = damage.and_then(|damage| damage.key.clone()) else {
                    return refused("no damaged place of this transcript waits for a decision".to_owned());
                };
                let there = plan.damage.blocking();
                if there != *count {
                    return refused(format!("{there} places are damaged, not {count}"));
                }
                Ok((key, Some(Decision::Accept)))
            }
            Word::About(what, None) => {
                let kept: Vec<&String> = self.0.keys().filter(|key| is_meant(what, key)).collect();
                match kept[..] {
                    [key] => Ok((key.clone(), None)),
                    [] => refused(format!("nothing was decided about {what}")),
                    _ => refused(format!(
                        "{what} may be {}",
                        kept.iter().map(|key| key.as_str()).collect::<Vec<_>>().join(" or ")
                    )),
                }
            }
            Word::About(what, Some(decision)) => {
                let answers: Vec<Decision> = match open(what) {
                    Some(blocked) => blocked.answers.to_vec(),
                    // What is decided already may be decided otherwise, as long as it is there.
                    None => self.decided_before(what, plan),
                };
                if answers.contains(decision) {
                    return Ok((what.clone(), Some(*decision)));
                }
                if answers.is_empty() {
                    let mut keys: Vec<&str> =
                        plan.blocked.iter().filter_map(|blocked| blocked.key.as_deref()).collect();
                    keys.dedup();
                    let there = match keys[..] {
                        [] => "nothing of this transcript waits for a decision".to_owned(),
                        _ => format!("what waits for a decision is {}", keys.join(", ")),
                    };
                    return refused(format!("{what} is not in question; {there}"));
                }
                let all: Vec<&str> = answers.iter().map(|answer| answer.name()).collect();
                refused(format!("the answers about {what} are {}", all.join(" and ")))
            }
        }
    }

    fn decided_before(&self, what: &str, plan: &Plan) -> Vec<Decision> {
        let branch = plan.off_chain.iter().find(|branch| branch.key == what);
        match branch.map(|branch| branch.fate) {
            Some(Fate::Dropped | Fate::Carried | Fate::Undecided) => vec![Decision::Drop, Decision::Carry],
            _ if !self.0.contains_key(what) => Vec::new(),
            _ if what.starts_with("duplicate/") => vec![Decision::Drop, Decision::Carry],
            _ => vec![Decision::Accept],
        }
    }

    /// Puts the changes in.
    pub fn apply(&mut self, changes: &[(String, Option<Decision>)], by: &str, at: Timestamp) {
        for (what, answer) in changes {
            match answer {
                Some(answer) => {
                    self.0.insert(what.clone(), Answer { answer: *answer, at, by: by.to_owned() });
                }
                None => drop(self.0.remove(what)),
            }
        }
    }
}

/// `damage` alone means the decision about damaged places, whose key nobody wants to type.
fn is_meant(what: &str, key: &str) -> bool {
    key == what || (what == "damage" && key.starts_with("damage/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_what_and_how() {
        let about = |what: &str, decision| Ok(Word::About(what.to_owned(), decision));
        assert_eq!("a-b+2=drop".parse(), about("a-b+2", Some(Decision::Drop)));
        assert_eq!("field/user.x=y=accept".parse(), about("field/user.x=y", Some(Decision::Accept)));
        assert_eq!("damage=ask".parse(), about("damage", None));
        assert_eq!("damage=3".parse(), Ok(Word::Damage(3)));
        for wrong in ["", "drop", "=drop", "x=3", "x=Drop", "damage=", "damage=-1"] {
            assert!(wrong.parse::<Word>().is_err(), "{wrong}");
        }
    }
}
