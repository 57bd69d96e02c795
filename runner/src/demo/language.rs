//! The two languages the demo speaks, chosen by the locale.

/// A language of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// English.
    English,
    /// Chinese.
    Chinese,
}

impl Language {
    /// The language of the environment: `LC_ALL` before `LC_MESSAGES` before `LANG`, the first that is not empty.
    #[must_use]
    pub fn of(env: &dyn Fn(&str) -> Option<String>) -> Self {
        let locale = ["LC_ALL", "LC_MESSAGES", "LANG"]
            .into_iter()
            .filter_map(env)
            .find(|value| !value.is_empty())
            .unwrap_or_default();
        let language: String = locale.chars().take_while(char::is_ascii_alphabetic).collect();
        if language.eq_ignore_ascii_case("zh") { Self::Chinese } else { Self::English }
    }
}

/// The same thing said in both languages, beside each other, so that neither is forgotten when one changes. Values are
/// captured by name.
macro_rules! say {
    ($language:expr, $english:literal, $chinese:literal $(,)?) => {
        match $language {
            $crate::demo::Language::English => format!($english),
            $crate::demo::Language::Chinese => format!($chinese),
        }
    };
}
pub(super) use say;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(set: &[(&str, &str)]) -> Language {
        Language::of(&|name| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_strongest_variable_that_is_set_decides() {
        assert_eq!(of(&[]), Language::English);
        assert_eq!(of(&[("LANG", "zh_CN.UTF-8")]), Language::Chinese);
        assert_eq!(of(&[("LANG", "zh_CN.UTF-8"), ("LC_ALL", "C.UTF-8")]), Language::English);
        assert_eq!(of(&[("LANG", "de_DE"), ("LC_MESSAGES", "zh_TW"), ("LC_ALL", "")]), Language::Chinese);
        assert_eq!(of(&[("LANG", "zhuang")]), Language::English);
        assert_eq!(of(&[("LANG", "zh")]), Language::Chinese);
    }
}
