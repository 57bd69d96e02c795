//! Keeps what must not be told out of a program's own words: its standard error may repeat its input or its
//! environment, and ends up in errors, `status` and logs.

/// Shorter stretches of what was said are ordinary words.
const LEAST: usize = 12;

/// The values that no text of ours may hold: those of variables that sound like secrets.
#[must_use]
pub fn secrets<'a>(variables: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    variables
        .filter(|(name, value)| value.len() >= 6 && sounds_secret(name))
        .map(|(_, value)| value.to_owned())
        .collect()
}

/// Whether a variable of this name holds a secret.
#[must_use]
pub fn sounds_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "HEADERS"].iter().any(|word| name.contains(word))
}

/// The text without lines that repeat something said, and with secrets blotted out.
#[must_use]
pub fn hush(text: &str, secrets: &[String], input: &[u8]) -> String {
    let mut out = Vec::new();
    let said = said_in(input);
    for line in text.lines() {
        let mut line = line.to_owned();
        for secret in secrets {
            line = line.replace(secret.as_str(), "[secret]");
        }
        if said.iter().any(|words| shares(&line, words)) {
            line = "[a line that repeats what was said]".to_owned();
        }
        out.push(line);
    }
    out.join("\n")
}

/// The words in the line that went in, as they were said and as JSON writes them.
fn said_in(input: &[u8]) -> Vec<String> {
    let value: serde_json::Value = serde_json::from_slice(input).unwrap_or_default();
    let blocks = value.pointer("/message/content").and_then(serde_json::Value::as_array);
    let mut all = Vec::new();
    for text in blocks.into_iter().flatten().filter_map(|block| block["text"].as_str()) {
        // The envelope is ours; what stands between its tags is not.
        let words =
            text.split_once(">\n").filter(|_| text.starts_with("<channel ")).map_or(text, |(_, words)| words);
        let words = words.strip_suffix("\n</channel>").unwrap_or(words);
        all.push(words.to_owned());
        all.push(serde_json::Value::from(words).to_string().trim_matches('"').to_owned());
    }
    all
}

/// Whether a stretch of the words stands in the line.
fn shares(line: &str, words: &str) -> bool {
    let words = words.trim();
    if words.len() <= LEAST {
        return words.len() > 3 && line.contains(words);
    }
    let starts: Vec<usize> = words.char_indices().map(|(at, _)| at).collect();
    starts.iter().filter(|at| **at + LEAST <= words.len()).any(|&at| {
        let end = (at + LEAST..=words.len()).find(|end| words.is_char_boundary(*end)).unwrap_or(words.len());
        line.contains(&words[at..end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_words_nor_secrets_come_through() {
        let variables = [("ANTHROPIC_API_KEY", "sk-ant-made-up"), ("LANG", "C.UTF-8"), ("MY_TOKEN", "x")];
        let secrets = secrets(variables.into_iter());
        assert_eq!(secrets, ["sk-ant-made-up"]);
        let input = r#"{"message":{"content":[{"type":"text","text":"<channel source=\"send\" user=\"ann\">\nthe red kite has a long tail 风筝的线是白色的\n</channel>"}]}}"#;
        let text = "starting\nbad key sk-ant-made-up\nError parsing: ..red kite has a l..\n看 风筝的线是白 看\nthe end";
        assert_eq!(
            hush(text, &secrets, input.as_bytes()),
            "starting\nbad key [secret]\n[a line that repeats what was said]\n[a line that repeats what was said]\nthe end"
        );
        assert_eq!(hush("a red flag", &[], input.as_bytes()), "a red flag");
    }
}
