//! `--chat`: the companion stays, and a line typed is a message.

use crate::cli::error::CliError;

use super::language::say;
use super::screen::{Screen, Voice};
use super::stage::{Stage, typed_line};

/// The runner's own chat where a terminal is; else sends what is typed until `/quit` or the end of standard input.
pub fn run(screen: &Screen, stage: &Stage) -> Result<(), CliError> {
    let language = screen.language;
    screen.space()?;
    if crate::chat::has_terminal() {
        screen.narrate(&say!(
            language,
            "This is the runner's chat (`kael-runner attach`). The stand-in is a simple mind: ask it what you said first, whether it remembers something, or to look at the shed.",
            "这就是运行器的聊天（`kael-runner attach`）。替身很简单：可以问它你先说了什么、还记不记得某件事，或者让它看看棚子。"
        ))?;
        return stage.attach();
    }
    screen.narrate(&say!(
        language,
        "Go on typing. The stand-in is a simple mind: ask it what you said first, whether it remembers something, or to look at the shed. /quit ends.",
        "接着聊吧。替身很简单：可以问它你先说了什么、还记不记得某件事，或者让它看看棚子。输入 /quit 结束。"
    ))?;
    loop {
        screen.prompt(Voice::Human)?;
        let Some(line) = typed_line()? else { break };
        let words = line.trim();
        if words == "/quit" {
            return Ok(());
        }
        if words.is_empty() {
            continue;
        }
        let said = stage.run(&["send", "--wait", "--", words])?;
        if said.code == 0 {
            screen.line(Voice::Companion, &said.text)?;
        } else {
            screen.line(Voice::Runner, &said.error)?;
        }
    }
    screen.space()
}
