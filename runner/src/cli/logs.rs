//! Logs, to standard error: standard output belongs to fronts.
//!
//! Nothing that was said is in them, at any level: events carry ids, counts and sentences of ours. What the human said
//! and what the companion answered is logged by one function alone, [`said`], and only under `log_content = true`.

use std::fmt;
use std::fs::File;
use std::io::IsTerminal;
use std::sync::Mutex;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::registry::LookupSpan;

use super::args::LogFormat;

/// Starts to log as asked, to standard error or to a file, from `level` on unless `KAEL_LOG` says otherwise.
pub fn start(format: LogFormat, level: &str, file: Option<File>) {
    let filter = EnvFilter::try_from_env("KAEL_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let format = match format {
        // systemd says so when standard error is the journal.
        LogFormat::Auto if std::env::var_os("JOURNAL_STREAM").is_some() => LogFormat::Journald,
        LogFormat::Auto => LogFormat::Text,
        other => other,
    };
    let ansi = file.is_none() && std::io::stderr().is_terminal();
    let writer = match file {
        Some(file) => BoxMakeWriter::new(Mutex::new(file)),
        None => BoxMakeWriter::new(std::io::stderr),
    };
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_target(false);
    match format {
        LogFormat::Json => logs.json().flatten_event(true).with_target(true).init(),
        LogFormat::Journald => logs.with_ansi(false).event_format(Journald).init(),
        LogFormat::Auto | LogFormat::Text => logs.with_ansi(ansi).init(),
    }
}

/// Logs words of the conversation. The caller has looked at `log_content`.
pub fn said(turn: i64, who: &str, words: &str) {
    tracing::info!(turn, who, words, "said");
}

/// The syslog level that journald takes off the line's head, then the message and its fields.
struct Journald;

impl<S, N> FormatEvent<S, N> for Journald
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        let mut line = String::new();
        ctx.format_fields(Writer::new(&mut line), event)?;
        // Every line of an entry needs its level.
        for part in line.lines() {
            writeln!(writer, "<{level}>{part}")?;
        }
        Ok(())
    }
}
