//! From the command line of a running `claude` to the `resume_command` of a companion.
//!
//! The session is named by `--resume {session_id}`, the runner adds what streaming needs, and a prompt is not part of
//! how a companion is started: these go. All else stays as its owner wrote it. The options and which of them take
//! values are those that 2.1.199 and 2.1.332 print with `--help`.

/// What was made of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Arguments that stay, without the program.
    pub kept: Vec<String>,
    /// What chose the session, replaced.
    pub replaced: Vec<String>,
    /// What the runner says itself, or what has no place in a companion's turn.
    pub dropped: Vec<String>,
    /// How many words of a prompt stood there; they may be private and are not repeated.
    pub prompts: usize,
}

/// How an option takes values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    Perhaps,
    One,
    Many,
}

/// What becomes of an option.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    Replaced,
    Dropped,
}

fn option(name: &str) -> Option<(Takes, Fate)> {
    Some(match name {
        "-c" | "--continue" | "--fork-session" => (Takes::Nothing, Fate::Replaced),
        "-r" | "--resume" | "--from-pr" | "--teleport" => (Takes::Perhaps, Fate::Replaced),
        "--session-id" | "--resume-session-at" => (Takes::One, Fate::Replaced),
        "-p"
        | "--print"
        | "--verbose"
        | "--replay-user-messages"
        | "--include-partial-messages"
        | "--include-hook-events"
        | "--no-session-persistence"
        | "--bg"
        | "--background"
        | "--tmux"
        | "--ide"
        | "--desktop" => (Takes::Nothing, Fate::Dropped),
        "-w" | "--worktree" | "--remote-control" | "--cloud" | "--prompt-suggestions" => {
            (Takes::Perhaps, Fate::Dropped)
        }
        "--input-format" | "--output-format" | "--json-schema" | "--remote-control-session-name-prefix" => {
            (Takes::One, Fate::Dropped)
        }
        "-d" | "--debug" => (Takes::Perhaps, Fate::Kept),
        "--agent"
        | "--agents"
        | "--append-system-prompt"
        | "--append-system-prompt-file"
        | "--autocompact"
        | "--debug-file"
        | "--effort"
        | "--environment"
        | "--fallback-model"
        | "--max-budget-usd"
        | "--max-turns"
        | "--model"
        | "-n"
        | "--name"
        | "--permission-mode"
        | "--permission-prompt-tool"
        | "--permission-prompts"
        | "--plugin-dir"
        | "--plugin-url"
        | "--setting-sources"
        | "--settings"
        | "--system-prompt"
        | "--system-prompt-file"
        | "--system-prompt-snapshot" => (Takes::One, Fate::Kept),
        "--add-dir" | "--allowedTools" | "--allowed-tools" | "--disallowedTools" | "--disallowed-tools"
        | "--betas" | "--file" | "--mcp-config" | "--tools" => (Takes::Many, Fate::Kept),
        "--allow-dangerously-skip-permissions"
        | "--ax-screen-reader"
        | "--bare"
        | "--brief"
        | "--chrome"
        | "--dangerously-skip-permissions"
        | "--disable-slash-commands"
        | "--exclude-dynamic-system-prompt-sections"
        | "--forward-subagent-text"
        | "--no-chrome"
        | "--restricted"
        | "--safe-mode"
        | "--strict-mcp-config" => (Takes::Nothing, Fate::Kept),
        _ => return None,
    })
}

/// Sorts the arguments of a running process, program name first.
#[must_use]
pub fn resume_command(arguments: &[String]) -> Copied {
    let mut copied = Copied { kept: Vec::new(), replaced: Vec::new(), dropped: Vec::new(), prompts: 0 };
    let mut rest = arguments.iter().skip(1).peekable();
    while let Some(argument) = rest.next() {
        if argument == "--" {
            copied.prompts += rest.count();
            break;
        }
        if !argument.starts_with('-') || argument == "-" {
            copied.prompts += 1;
            continue;
        }
        let (name, inline) =
            argument.split_once('=').map_or((argument.as_str(), false), |(name, _)| (name, true));
        // An option of a later version keeps the word behind it: to lose its value would change what it means.
        let (takes, fate) = option(name).unwrap_or((Takes::Perhaps, Fate::Kept));
        let mut words = vec![argument.clone()];
        let value = |next: &&String| !next.starts_with('-');
        match takes {
            _ if inline => {}
            Takes::Nothing => {}
            Takes::Perhaps => words.extend(rest.next_if(value).cloned()),
            Takes::One => words.extend(rest.next().cloned()),
            Takes::Many => {
                while let Some(next) = rest.next_if(value) {
                    words.push(next.clone());
                }
            }
        }
        match fate {
            Fate::Kept => copied.kept.extend(words),
            Fate::Replaced => copied.replaced.extend(words),
            Fate::Dropped => copied.dropped.extend(words),
        }
    }
    copied
}

impl Copied {
    /// What a human should know about it.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if !self.replaced.is_empty() {
            remarks.push(format!("{} becomes --resume {{session_id}}", self.replaced.join(" ")));
        }
        if !self.dropped.is_empty() {
            remarks
                .push(format!("{} is left out: the runner says what a turn needs", self.dropped.join(" ")));
        }
        if self.prompts > 0 {
            remarks.push("the prompt is left out: send it to the companion".to_owned());
        }
        remarks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Copied {
        resume_command(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn what_chooses_the_session_is_replaced_and_the_rest_stays() {
        let copied =
            of("claude --continue --model opus --permission-mode acceptEdits --add-dir /a /b --chrome");
        assert_eq!(
            copied.kept.join(" "),
            "--model opus --permission-mode acceptEdits --add-dir /a /b --chrome"
        );
        assert_eq!(copied.replaced, ["--continue"]);
        for line in [
            "claude -c",
            "claude --resume 8b7d7e0a-0000-4000-8000-000000000001",
            "claude -r --fork-session",
            "claude --resume=8b7d7e0a-0000-4000-8000-000000000001",
            "claude --session-id 8b7d7e0a-0000-4000-8000-000000000001",
        ] {
            let copied = of(line);
            assert!(copied.kept.is_empty() && copied.prompts == 0, "{line}: {copied:?}");
            assert_eq!(copied.replaced.join(" "), line.split_once(' ').unwrap().1);
        }
    }

    #[test]
    fn streaming_and_prompts_are_left_out() {
        let copied =
            of("/opt/claude -p --output-format stream-json --input-format=stream-json --verbose hello there");
        assert!(copied.kept.is_empty());
        assert_eq!(copied.dropped.len(), 5);
        assert_eq!(copied.prompts, 2);
        assert!(copied.remarks().iter().all(|remark| !remark.contains("hello")), "a prompt is private");
        assert_eq!(of("claude --model opus -- --not-an-option").prompts, 1);
    }

    #[test]
    fn values_are_not_taken_for_prompts() {
        let copied =
            of("claude --append-system-prompt --be-kind --allowedTools Bash Read --settings s.json hi");
        assert_eq!(
            copied.kept.join(" "),
            "--append-system-prompt --be-kind --allowedTools Bash Read --settings s.json"
        );
        assert_eq!(copied.prompts, 1);
        let later = of("claude --of-a-later-version value --model opus");
        assert_eq!(later.kept.join(" "), "--of-a-later-version value --model opus");
    }
}
