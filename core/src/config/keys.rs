//! The form of a declared key. Everything known about one stands in a single place: `tables`.

/// Whether giving a key changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The key does what its documentation says.
    Works,
    /// The key is read and checked; the feature it belongs to comes later.
    Later,
    /// The key is taken for the sake of old files and never does anything (DESIGN 12).
    Ignored,
}

/// One key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// The table it stands in; empty for the top level.
    pub table: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What its value must be.
    pub expects: &'static str,
    /// Whether its feature is there.
    pub effect: Effect,
    pub(super) doc: &'static str,
    pub(super) default: fn() -> String,
    pub(super) original: Option<fn() -> String>,
}

impl Key {
    /// The key with its table, as in `runner.rebuild`.
    #[must_use]
    pub fn path(&self) -> String {
        if self.table.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.table, self.name) }
    }

    /// What it does, in one line.
    #[must_use]
    pub fn doc(&self) -> &'static str {
        self.doc.trim()
    }

    /// The default as TOML; empty where it is none, or worked out from other keys as the
    /// documentation says.
    #[must_use]
    pub fn default_toml(&self) -> String {
        (self.default)()
    }

    /// The default in the original's configuration, where it is another one (DESIGN 12).
    #[must_use]
    pub fn original_default_toml(&self) -> Option<String> {
        self.original.map(|show| show())
    }
}

/// What the file says in one table, for the reader that does not care which table it is.
pub(super) trait Layer {
    /// The keys of the table.
    fn keys(&self) -> &'static [Key];

    /// Takes a value for `name`; `false` if there is no such key.
    fn set(
        &mut self,
        reader: &mut super::setting::Reader<'_>,
        name: &str,
        key: &str,
        value: &toml::Spanned<toml::de::DeValue<'_>>,
    ) -> bool;
}

/// Declares a table: the struct with its values resolved, the layer with what a file gives, and
/// the keys' descriptions, all from one list.
///
/// `key: Type = default, effect [, original(default)] [, check(function)];`
macro_rules! settings {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Config:ident, $Layer:ident in $table:literal {
            $( $(#[doc = $doc:literal])+ $name:ident: $ty:ty = $default:expr, $effect:ident
               $(, original($original:expr))? $(, check($check:expr))?; )*
        }
    ) => {
        $(#[$meta])*
        $vis struct $Config {
            $( $(#[doc = $doc])+ pub $name: $ty, )*
        }

        #[derive(Clone, Default)]
        pub(super) struct $Layer {
            $( pub(super) $name: Option<Given<$ty>>, )*
        }

        impl $Layer {
            /// The keys of this table, in the order of the documentation.
            pub(super) const KEYS: &'static [Key] = &[ $( Key {
                table: $table,
                name: stringify!($name),
                expects: <$ty as Setting>::EXPECTED,
                effect: Effect::$effect,
                doc: concat!($($doc),+),
                default: || { let default: $ty = $default; Setting::show(&default) },
                original: settings!(@original $ty $(, $original)?),
            }, )* ];

            /// What this layer says, and below it what the other one says.
            pub(super) fn over(&self, below: &Self) -> Self {
                Self { $( $name: self.$name.as_ref().or(below.$name.as_ref()).cloned(), )* }
            }

            /// The values, with defaults where nothing was given.
            pub(super) fn resolve(&self, original: bool) -> $Config {
                let _: bool = original;
                $Config { $(
                    $name: match &self.$name {
                        Some(given) => given.value.clone(),
                        None => { settings!(@default original, $ty, $default $(, $original)?) }
                    },
                )* }
            }

            /// The keys that were given.
            pub(super) fn given(&self) -> impl Iterator<Item = &'static Key> + use<> {
                let given = [ $( self.$name.is_some(), )* ];
                Self::KEYS.iter().zip(given).filter_map(|(key, given)| given.then_some(key))
            }
        }

        impl Layer for $Layer {
            fn keys(&self) -> &'static [Key] {
                Self::KEYS
            }

            fn set(
                &mut self,
                reader: &mut Reader<'_>,
                name: &str,
                key: &str,
                value: &toml::Spanned<DeValue<'_>>,
            ) -> bool {
                match name {
                    $( stringify!($name) => {
                        let check: Option<Check<$ty>> = settings!(@check $ty $(, $check)?);
                        self.$name = reader.setting(key, value, check);
                        true
                    } )*
                    _ => false,
                }
            }
        }
    };
    (@original $ty:ty) => { None };
    (@original $ty:ty, $original:expr) => {
        Some(|| { let original: $ty = $original; Setting::show(&original) })
    };
    (@default $flag:ident, $ty:ty, $default:expr) => { $default };
    (@default $flag:ident, $ty:ty, $default:expr, $original:expr) => {
        if $flag { $original } else { $default }
    };
    (@check $ty:ty) => { None };
    (@check $ty:ty, $check:expr) => { Some(|value: &$ty| $check(value)) };
}
pub(super) use settings;
