//! How one value of the file becomes a typed one, and what is said when it does not.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::duration;
use super::error::{Problem, position};
use super::places::Places;

/// A value the file gives, and where. Not `Debug`: values may be secrets.
#[derive(Clone)]
pub(super) struct Given<T> {
    pub(super) value: T,
    /// Bytes of the file.
    pub(super) at: Range<usize>,
    /// The key as the owner should find it, with table and companion.
    pub(super) key: String,
}

/// Why a value cannot be taken.
pub(super) struct Mismatch {
    message: String,
    /// A place inside the value that says more than the value as a whole.
    at: Option<Range<usize>>,
}

impl Mismatch {
    pub(super) fn said(message: impl Into<String>) -> Self {
        Self { message: message.into(), at: None }
    }

    /// The wrong type. Numbers and truth values are repeated; text is not, since it may be a secret.
    fn expected(what: &str, found: &DeValue<'_>) -> Self {
        let kind = found.type_str();
        let article = if matches!(found, DeValue::Integer(_) | DeValue::Array(_)) { "an" } else { "a" };
        Self::said(match found {
            DeValue::Integer(number) => format!("expected {what}, found the {kind} {number}"),
            DeValue::Float(number) => format!("expected {what}, found the {kind} {number}"),
            DeValue::Boolean(truth) => format!("expected {what}, found the {kind} {truth}"),
            DeValue::String(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
                format!("expected {what}, found {article} {kind}")
            }
        })
    }
}

/// A bound of a single value: says what is wrong and what to do.
pub(super) type Check<T> = fn(&T) -> Result<(), String>;

/// A type that a key can have.
pub(super) trait Setting: Sized {
    /// What the file must hold, as a message completes "expected ...".
    const EXPECTED: &'static str;

    /// Takes the value, or says why not.
    fn read(value: &DeValue<'_>, places: &Places) -> Result<Self, Mismatch>;

    /// Writes the value as the file would.
    fn show(&self) -> String;
}

/// A text in quotes, as TOML writes it.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let number = value.as_integer()?;
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

macro_rules! whole_numbers {
    ($($type:ty: $expected:literal),*) => { $(
        impl Setting for $type {
            const EXPECTED: &'static str = $expected;

            fn read(value: &DeValue<'_>, _: &Places) -> Result<Self, Mismatch> {
                integer(value)
                    .and_then(|number| Self::try_from(number).ok())
                    .ok_or_else(|| Mismatch::expected(Self::EXPECTED, value))
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )* };
}

whole_numbers!(i64: "a whole number", u64: "a whole number, 0 or more", u32: "a whole number from 0 to 4294967295");

/// `u8` is only used for percents.
impl Setting for u8 {
    const EXPECTED: &'static str = "a percentage from 0 to 100";

    fn read(value: &DeValue<'_>, _: &Places) -> Result<Self, Mismatch> {
        integer(value)
            .and_then(|number| Self::try_from(number).ok())
            .filter(|number| *number <= 100)
            .ok_or_else(|| Mismatch::expected(Self::EXPECTED, value))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for bool {
    const EXPECTED: &'static str = "true or false";

    fn read(value: &DeValue<'_>, _: &Places) -> Result<Self, Mismatch> {
        value.as_bool().ok_or_else(|| Mismatch::expected(Self::EXPECTED, value))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for Duration {
    const EXPECTED: &'static str = "a duration: seconds, or a text such as \"20m\"";

    fn read(value: &DeValue<'_>, places: &Places) -> Result<Self, Mismatch> {
        match value {
            DeValue::Integer(_) => u32::read(value, places)
                .map_err(|_| Mismatch::expected(Self::EXPECTED, value))
                .and_then(|seconds| duration::from_seconds(f64::from(seconds)).map_err(Mismatch::said)),
            DeValue::Float(number) => number
                .as_str()
                .parse()
                .map_err(|_| Mismatch::expected(Self::EXPECTED, value))
                .and_then(|seconds| duration::from_seconds(seconds).map_err(Mismatch::said)),
            DeValue::String(text) => duration::from_text(text).map_err(Mismatch::said),
            DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
                Err(Mismatch::expected(Self::EXPECTED, value))
            }
        }
    }

    fn show(&self) -> String {
        duration::show(*self)
    }
}

impl Setting for String {
    const EXPECTED: &'static str = "a text in quotes";

    fn read(value: &DeValue<'_>, _: &Places) -> Result<Self, Mismatch> {
        let text = value.as_str().ok_or_else(|| Mismatch::expected(Self::EXPECTED, value))?;
        // Arguments, environment and paths all end at a NUL; none of our texts needs one.
        if text.contains('\0') {
            return Err(Mismatch::said("a text cannot hold a NUL character"));
        }
        Ok(text.to_owned())
    }

    fn show(&self) -> String {
        quoted(self)
    }
}

impl Setting for PathBuf {
    const EXPECTED: &'static str = "a path in quotes";

    fn read(value: &DeValue<'_>, places: &Places) -> Result<Self, Mismatch> {
        if !value.is_str() {
            return Err(Mismatch::expected(Self::EXPECTED, value));
        }
        places.expand(&String::read(value, places)?).map_err(Mismatch::said)
    }

    fn show(&self) -> String {
        quoted(&self.to_string_lossy())
    }
}

macro_rules! lists {
    ($($type:ty: $expected:literal),*) => { $(
        impl Setting for Vec<$type> {
            const EXPECTED: &'static str = $expected;

            fn read(value: &DeValue<'_>, places: &Places) -> Result<Self, Mismatch> {
                let list = value.as_array().ok_or_else(|| Mismatch::expected(Self::EXPECTED, value))?;
                list.iter()
                    .map(|item| {
                        <$type>::read(item.get_ref(), places)
                            .map_err(|wrong| Mismatch { at: Some(item.span()), ..wrong })
                    })
                    .collect()
            }

            fn show(&self) -> String {
                let items: Vec<String> = self.iter().map(Setting::show).collect();
                format!("[{}]", items.join(", "))
            }
        }
    )* };
}

lists!(String: "a list of texts", i64: "a list of whole numbers");

impl Setting for BTreeMap<String, String> {
    const EXPECTED: &'static str = "a table of texts";

    fn read(value: &DeValue<'_>, places: &Places) -> Result<Self, Mismatch> {
        let table = value.as_table().ok_or_else(|| Mismatch::expected(Self::EXPECTED, value))?;
        table
            .iter()
            .map(|(name, item)| {
                let text = String::read(item.get_ref(), places)
                    .map_err(|wrong| Mismatch { at: Some(item.span()), ..wrong })?;
                Ok((name.get_ref().to_string(), text))
            })
            .collect()
    }

    /// Names only: the values may be secrets.
    fn show(&self) -> String {
        let items: Vec<String> = self.keys().map(|name| format!("{} = ...", quoted(name))).collect();
        if items.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", items.join(", ")) }
    }
}

impl<T: Setting> Setting for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn read(value: &DeValue<'_>, places: &Places) -> Result<Self, Mismatch> {
        T::read(value, places).map(Some)
    }

    fn show(&self) -> String {
        self.as_ref().map(T::show).unwrap_or_default()
    }
}

/// Makes an enum whose values the file writes as texts.
macro_rules! choices {
    ($( $(#[$meta:meta])* $name:ident { $( $(#[$item:meta])* $variant:ident = $text:literal ),+ $(,)? } )*) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $( $(#[$item])* $variant, )+ }

        impl $name {
            /// The value as the configuration writes it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $text, )+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl $crate::config::setting::Setting for $name {
            const EXPECTED: &'static str = $crate::config::setting::choices!(@list $($text),+);

            fn read(
                value: &toml::de::DeValue<'_>,
                _: &$crate::config::places::Places,
            ) -> Result<Self, $crate::config::setting::Mismatch> {
                match value.as_str() {
                    $( Some($text) => Ok(Self::$variant), )+
                    Some(_) | None => {
                        Err($crate::config::setting::not_a_choice(Self::EXPECTED, &[$($text),+], value))
                    }
                }
            }

            fn show(&self) -> String {
                $crate::config::setting::quoted(self.as_str())
            }
        }
    )* };
    (@list $only:literal) => { concat!("\"", $only, "\"") };
    (@list $first:literal, $last:literal) => { concat!("\"", $first, "\" or \"", $last, "\"") };
    (@list $first:literal, $second:literal, $last:literal) => {
        concat!("\"", $first, "\", \"", $second, "\" or \"", $last, "\"")
    };
}
pub(super) use choices;

/// A text that is none of a key's values; the nearest one is named where it is near.
pub(super) fn not_a_choice(expected: &str, choices: &[&'static str], value: &DeValue<'_>) -> Mismatch {
    let Some(text) = value.as_str() else { return Mismatch::expected(expected, value) };
    let shown: String = text.chars().take(40).collect();
    let hint = match nearest(text, choices.iter().copied()) {
        Some((choice, true)) => format!("; did you mean {}?", quoted(choice)),
        Some((_, false)) | None => String::new(),
    };
    Mismatch::said(format!("expected {expected}, found {}{hint}", quoted(&shown)))
}

/// The candidate that is nearest to `text`, and whether it is near enough to be what was meant.
pub(super) fn nearest<'a>(text: &str, candidates: impl Iterator<Item = &'a str>) -> Option<(&'a str, bool)> {
    let text = text.to_lowercase();
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(&text, candidate), candidate))
        .min()
        .map(|(distance, candidate)| (candidate, distance <= 1 + candidate.chars().count() / 4))
}

/// Collects what is wrong with one file while it is read.
pub(super) struct Reader<'a> {
    pub(super) text: &'a str,
    pub(super) places: &'a Places,
    pub(super) problems: Vec<Problem>,
}

impl Reader<'_> {
    /// Notes a problem at a place of the file.
    pub(super) fn problem(&mut self, at: &Range<usize>, key: &str, message: impl Into<String>) {
        self.problems.push(Problem {
            at: Some(position(self.text, at.start)),
            key: Some(key.to_owned()),
            message: message.into(),
        });
    }

    /// Notes a problem with something the file does not say.
    pub(super) fn missing(&mut self, key: &str, message: impl Into<String>) {
        self.problems.push(Problem { at: None, key: Some(key.to_owned()), message: message.into() });
    }

    /// Reads one value and holds it against its key's bounds.
    pub(super) fn setting<T: Setting>(
        &mut self,
        key: &str,
        value: &toml::Spanned<DeValue<'_>>,
        check: Option<Check<T>>,
    ) -> Option<Given<T>> {
        let read = T::read(value.get_ref(), self.places).and_then(|read| match check {
            Some(check) => check(&read).map(|()| read).map_err(Mismatch::said),
            None => Ok(read),
        });
        match read {
            Ok(read) => Some(Given { value: read, at: value.span(), key: key.to_owned() }),
            Err(wrong) => {
                self.problem(&wrong.at.unwrap_or(value.span()), key, wrong.message);
                None
            }
        }
    }

    /// Whether something is wrong with a key of this name, so that nothing more is concluded from it.
    pub(super) fn blames(&self, name: &str) -> bool {
        self.problems.iter().any(|problem| {
            problem.key.as_deref().and_then(|key| key.rsplit('.').next()).is_some_and(|last| last == name)
        })
    }

    /// The value as a table, or a problem; `written` is how its head should look.
    pub(super) fn table<'v, 'i>(
        &mut self,
        key: &str,
        written: &str,
        value: &'v toml::Spanned<DeValue<'i>>,
    ) -> Option<&'v DeTable<'i>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            let wrong = Mismatch::expected(&format!("a table, written {written}"), value.get_ref());
            self.problem(&value.span(), key, wrong.message);
        }
        table
    }
}
