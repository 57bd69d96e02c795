//! The other end: connects, reads the runner's lines, writes ours.

use std::io;
use std::path::Path;

use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;

use crate::claude::lines::{Line, next_line};

use super::protocol::{ClientLine, ServerLine};
use super::socket;

/// Lines that may wait for the chat; while it does not take them, the socket fills and the runner
/// sees a slow client.
const AHEAD: usize = 256;

/// The writing end.
#[derive(Debug)]
pub struct Client {
    write: OwnedWriteHalf,
}

/// A connection: the writing end, and the lines as they come. The channel ends with the connection.
#[derive(Debug)]
pub struct Connected {
    /// The writing end.
    pub client: Client,
    /// What the runner says.
    pub lines: mpsc::Receiver<ServerLine>,
}

impl Client {
    /// Connects to the runner of this state folder. Must be called inside a runtime.
    pub async fn connect(state_dir: &Path) -> io::Result<Connected> {
        let (read, write) = socket::connect(state_dir).await?.into_split();
        let (sender, lines) = mpsc::channel(AHEAD);
        tokio::spawn(async move {
            let mut input = BufReader::new(read);
            while let Ok(Some(line)) = next_line(&mut input).await {
                // What a newer runner says and we do not know is not for us.
                let Line::Whole(line) = line else { continue };
                let Ok(line) = serde_json::from_slice(&line) else { continue };
                if sender.send(line).await.is_err() {
                    return;
                }
            }
        });
        Ok(Connected { client: Self { write }, lines })
    }

    /// Sends one line.
    pub async fn send(&mut self, line: &ClientLine) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        self.write.write_all(text.as_bytes()).await
    }
}
