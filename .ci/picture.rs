//! A terminal's output (ANSI colours, no cursor movement but CR and erase-line) on standard input, an SVG of it on
//! standard output. Ids, process ids and temporary names are replaced by fixed ones, so that two pictures of the same
//! program differ only where the program does.

use std::collections::HashMap;
use std::io::{Read, Write};

use regex::Regex;
use unicode_width::UnicodeWidthChar;

const CELL: f64 = 8.4;
const LINE: f64 = 19.0;
const MARGIN: f64 = 18.0;
const BAR: f64 = 34.0;

/// Colours of the text, by SGR code.
fn colour(code: u8) -> &'static str {
    match code {
        31 => "#ff7b72",
        32 => "#7ee787",
        33 => "#e3b341",
        34 => "#79c0ff",
        35 => "#d2a8ff",
        36 => "#76e3ea",
        _ => "#e6edf3",
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Style {
    colour: u8,
    bold: bool,
    dim: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let lines = lines(&masked(&text)?);
    let columns: usize =
        std::env::args().nth(1).ok_or("usage: picture COLUMNS < output > picture.svg")?.parse()?;
    let mut out = std::io::stdout().lock();
    Ok(out.write_all(svg(&lines, columns).as_bytes())?)
}

/// The text with everything fixed that is another one in every run.
fn masked(text: &str) -> Result<String, regex::Error> {
    let mut known: HashMap<String, String> = HashMap::new();
    let ids = Regex::new(r"\b[0-9a-f]{8}(-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|…)")?;
    let text = ids.replace_all(text, |found: &regex::Captures<'_>| {
        let next = known.len() as u32 + 1;
        let head = known.entry(found[0][..8].to_owned()).or_insert_with(|| {
            // Spread over the digits, so that it looks like the id it stands for.
            format!("{:08x}", next.wrapping_mul(0x9e37_79b1))
        });
        if found[1].starts_with('-') {
            format!(
                "{head}-0000-4000-8000-{:012x}",
                u64::from(u32::from_str_radix(head, 16).unwrap_or_default())
            )
        } else {
            format!("{head}…")
        }
    });
    let pids = Regex::new(r"kill -9 \d+ \d+")?;
    Ok(pids.replace_all(&text, "kill -9 4711 4712").into_owned())
}

/// What stands on the screen in the end, line by line, as runs of one style at a column.
fn lines(text: &str) -> Vec<Vec<(usize, Style, String)>> {
    let mut lines = vec![Vec::new()];
    let (mut column, mut style) = (0, Style::default());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let line: &mut Vec<(usize, Style, String)> = match lines.last_mut() {
            Some(line) => line,
            None => return lines,
        };
        match letter {
            '\n' => {
                lines.push(Vec::new());
                column = 0;
            }
            '\r' => column = 0,
            '\u{1b}' if letters.next_if_eq(&'[').is_some() => {
                let mut code = String::new();
                let end = loop {
                    match letters.next() {
                        Some(letter) if letter.is_ascii_alphabetic() => break letter,
                        Some(letter) => code.push(letter),
                        None => break ' ',
                    }
                };
                match end {
                    'm' => style = restyled(style, &code),
                    'K' => line.retain(|(at, ..)| *at < column),
                    _ => {}
                }
            }
            letter => {
                match line.last_mut() {
                    Some((at, same, run)) if *same == style && *at + width(run) == column => run.push(letter),
                    _ => line.push((column, style, letter.to_string())),
                }
                column += letter.width().unwrap_or(0);
            }
        }
    }
    while lines.last().is_some_and(Vec::is_empty) {
        lines.pop();
    }
    while lines.first().is_some_and(Vec::is_empty) {
        lines.remove(0);
    }
    lines
}

fn width(text: &str) -> usize {
    text.chars().map(|letter| letter.width().unwrap_or(0)).sum()
}

fn restyled(mut style: Style, codes: &str) -> Style {
    for code in codes.split(';') {
        match code.parse().unwrap_or(0) {
            0 => style = Style::default(),
            1 => style.bold = true,
            2 => style.dim = true,
            code @ 30..=37 => style.colour = code,
            _ => {}
        }
    }
    style
}

fn svg(lines: &[Vec<(usize, Style, String)>], columns: usize) -> String {
    let wide = columns as f64 * CELL + 2.0 * MARGIN;
    let high = lines.len() as f64 * LINE + BAR + MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide:.0}\" height=\"{high:.0}\" viewBox=\"0 0 {wide:.0} {high:.0}\" \
         xml:space=\"preserve\" role=\"img\" aria-label=\"kael-runner demo in a terminal\">\n\
         <style>text{{font:14px ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono','Noto Sans Mono',monospace;\
         white-space:pre;fill:#e6edf3}}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n"
    );
    for (at, fill) in ["#ff5f57", "#febc2e", "#28c840"].iter().enumerate() {
        out.push_str(&format!("<circle cx=\"{}\" cy=\"17\" r=\"5.5\" fill=\"{fill}\"/>\n", 20 + at * 18));
    }
    for (row, line) in lines.iter().enumerate() {
        let y = BAR + (row as f64 + 1.0) * LINE - 5.0;
        for (column, style, run) in line.iter().filter(|(_, _, run)| !run.trim().is_empty()) {
            let trimmed = run.trim_start();
            let column = column + width(run) - width(trimmed);
            let trimmed = trimmed.trim_end();
            let x = MARGIN + column as f64 * CELL;
            // A style and no attributes: the sheet's rules would win over those.
            let mut look = Vec::new();
            if style.colour != 0 {
                look.push(format!("fill:{}", colour(style.colour)));
            }
            if style.bold {
                look.push("font-weight:bold".to_owned());
            }
            if style.dim {
                look.push("opacity:.62".to_owned());
            }
            let look = if look.is_empty() { String::new() } else { format!(" style=\"{}\"", look.join(";")) };
            // The length keeps the columns where they are, whatever font the reader has.
            let length = width(trimmed) as f64 * CELL;
            out.push_str(&format!(
                "<text x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\"{look}>{}</text>\n",
                escaped(trimmed)
            ));
        }
    }
    out.push_str("</svg>\n");
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
