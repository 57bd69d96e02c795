//! The questions that the mind understands, in English and Chinese, and how it answers them.

use super::brain::Heard;

/// Whether a text asks about the conversation itself; such a text asks for no work.
pub(super) fn is_question(lower: &str) -> bool {
    FIRST.iter().chain(COUNT).chain(PREVIOUS).any(|p| lower.contains(p)) || topic(lower).is_some()
}

const FIRST: &[&str] = &[
    "first thing i said",
    "first thing i told",
    "first thing i ever",
    "did i say first",
    "did i tell you first",
    "my first message",
    "my very first",
    "第一句话",
    "第一句是",
    "第一件事",
    "最先说",
    "最开始说",
    "一开始说",
];
const COUNT: &[&str] = &[
    "how many things",
    "how many messages",
    "how many sentences",
    "几句话",
    "多少句",
    "几件事",
    "多少条",
    "多少件事",
];
const PREVIOUS: &[&str] =
    &["what did i just say", "the last thing i said", "my last message", "刚才说了什么", "上一句"];
const TOPIC: &[&str] = &[
    "do you remember ",
    "do you still remember ",
    "did i ever mention ",
    "have i told you about ",
    "what did i say about ",
    "what did i tell you about ",
    "还记得",
    "记得",
    "我说过",
    "我提过",
];

pub(super) fn reply(words: &str, past: &[Heard], number: usize) -> String {
    let lower = words.to_lowercase();
    let chinese = is_chinese(words);
    let has = |patterns: &[&str]| patterns.iter().any(|p| lower.contains(p));
    if has(FIRST) {
        return match past.first() {
            Some(h) if chinese => format!("你说的第一句话是：「{}」", h.words),
            Some(h) => format!("The first thing you said was: \"{}\"", h.words),
            None if chinese => "这就是你说的第一句话。".to_owned(),
            None => "This is the first thing you have said.".to_owned(),
        };
    }
    if has(COUNT) {
        return if chinese {
            format!("在这一句之前，你一共说了 {} 句话。", past.len())
        } else {
            format!("Before this one, you have told me {} things.", past.len())
        };
    }
    if has(PREVIOUS) {
        return match past.last() {
            Some(h) if chinese => format!("你刚才说：「{}」", h.words),
            Some(h) => format!("You just said: \"{}\"", h.words),
            None if chinese => "在这之前你什么都没说。".to_owned(),
            None => "You had said nothing before this.".to_owned(),
        };
    }
    if let Some(topic) = topic(&lower) {
        return match find(&topic, past) {
            Some(h) if chinese => format!("记得。你说过：「{}」", h.words),
            Some(h) => format!("Yes. You said: \"{}\"", h.words),
            None if chinese => format!("不，我不记得「{topic}」。"),
            None => format!("No, I do not remember \"{topic}\"."),
        };
    }
    if chinese {
        format!("第 {number} 句，记下了：{}", gist(words, 60))
    } else {
        format!("Noted as number {number}: {}", gist(words, 60))
    }
}

fn topic(lower: &str) -> Option<String> {
    TOPIC.iter().find_map(|p| {
        let (_, rest) = lower.split_once(p)?;
        let rest = rest.lines().next().unwrap_or_default();
        let rest = rest.trim_end_matches(['?', '？', '吗', '.', '。', '!', '！', ' ']);
        (!rest.is_empty()).then(|| rest.to_owned())
    })
}

/// The latest thing said that speaks of the topic: holds it whole, or holds most of its words.
fn find<'a>(topic: &str, past: &'a [Heard]) -> Option<&'a Heard> {
    let words: Vec<&str> = topic
        .split(|c: char| !c.is_alphanumeric())
        .filter(|w| w.chars().count() > 3 || w.chars().any(is_han))
        .collect();
    past.iter().rev().find(|h| {
        let said = h.words.to_lowercase();
        if topic_of_question(&said) {
            return false;
        }
        let hits = words.iter().filter(|w| said.contains(*w)).count();
        said.contains(topic) || (!words.is_empty() && hits * 2 > words.len())
    })
}

/// Earlier questions about a topic repeat its words and would be found in its place.
fn topic_of_question(said: &str) -> bool {
    topic(said).is_some() && (said.contains('?') || said.contains('？') || said.contains('吗'))
}

pub(super) fn gist(words: &str, most: usize) -> String {
    let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut short: String = line.chars().take(most).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short
}

pub(super) fn is_chinese(words: &str) -> bool {
    words.chars().any(is_han)
}

fn is_han(c: char) -> bool {
    ('\u{3400}'..='\u{9fff}').contains(&c)
}
