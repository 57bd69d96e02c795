//! Arguments for a shell, word for word.

/// One word of `sh` that means exactly `text`: in single quotes, in which nothing has a meaning but the quote
/// itself.
#[must_use]
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A command line of `sh` that runs exactly these arguments.
#[must_use]
pub fn quoted_line(arguments: &[String]) -> String {
    arguments.iter().map(|argument| quoted(argument)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    fn through_a_shell(arguments: &[String]) -> Vec<String> {
        let script = format!("printf '%s\\0' {}", quoted_line(arguments));
        let output = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.strip_suffix('\0').unwrap_or_default().split('\0').map(str::to_owned).collect()
    }

    #[test]
    fn nothing_means_anything_to_the_shell() {
        let nasty = [
            "two words",
            "it's",
            "\"",
            "$HOME",
            "`id`",
            "$(id)",
            "a\nb\n",
            "灯 🏮",
            "--",
            "-x",
            ";",
            "a;",
            "&",
            "*",
            "",
            "\\",
            "~",
            "#{pane_pid}",
            "#(id)",
            "!",
            "\t",
        ];
        let nasty: Vec<String> = nasty.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(through_a_shell(&nasty), nasty);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_argument_comes_through(arguments in prop::collection::vec("[^\0]{0,20}", 1..5)) {
            prop_assert_eq!(through_a_shell(&arguments), arguments);
        }
    }
}
