//! Listens on `attach.sock` and serves everyone attached, on a thread of its own: a rebuild that
//! keeps the supervisor busy does not make the chat stand still.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::claude::lines::{Line, next_line};
use crate::claude::marked;
use crate::companion::Companion;

use super::commands::Commands;
use super::hub::Hub;
use super::protocol::{Level, ServerLine};
use super::socket;

/// Answers to one client that may wait; a client that asks more without reading is made to wait.
const ANSWERS: usize = 64;
/// A client that does not read for so long is dropped.
const WRITE_TIME: Duration = Duration::from_secs(10);
/// How long clients may take to read the last lines when the runner leaves.
const PARTING: Duration = Duration::from_millis(500);

/// The thread that serves; ended, and its socket removed, when dropped.
#[derive(Debug)]
pub struct AttachServer {
    hub: Hub,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    path: std::path::PathBuf,
}

impl AttachServer {
    /// Starts to listen. The caller holds the runner's lock. `stop_turn` is called with the turn that a
    /// human wants stopped, and must not block.
    pub fn start(
        companion: Companion,
        hub: Hub,
        stop_turn: Box<dyn Fn(i64) + Send + Sync>,
    ) -> io::Result<Self> {
        let path = socket::path(&companion.config.state_dir);
        let listener = socket::listen(&companion.config.state_dir)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let served = hub.clone();
        let commands = Arc::new(Commands::new(companion, hub.clone(), stop_turn));
        let thread = std::thread::Builder::new().name("attach".to_owned()).spawn(move || {
            runtime.block_on(serve(listener, served, commands, stopped));
            // A command that still waits for the supervisor ends with the process.
            runtime.shutdown_background();
        })?;
        Ok(Self { hub, stop: Some(stop), thread: Some(thread), path })
    }
}

impl Drop for AttachServer {
    fn drop(&mut self) {
        self.hub.publish(&ServerLine::Bye);
        if let Some(stop) = self.stop.take() {
            stop.send(()).unwrap_or_default();
        }
        if let Some(thread) = self.thread.take() {
            // Its only way to end badly is a panic, which has been printed.
            thread.join().unwrap_or_default();
        }
        // The next runner removes what stays behind.
        std::fs::remove_file(&self.path).unwrap_or_default();
    }
}

async fn serve(
    listener: std::os::unix::net::UnixListener,
    hub: Hub,
    commands: Arc<Commands>,
    mut stopped: oneshot::Receiver<()>,
) {
    let listener = match socket::accept_from(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "nobody can attach"),
    };
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (hub, commands) = (hub.clone(), Arc::clone(&commands));
                    clients.spawn(async move {
                        if let Err(error) = client(stream, &hub, commands).await {
                            tracing::debug!(%error, "an attached client went away");
                        }
                    });
                }
                // Out of descriptors: those attached keep theirs, and a new one tries again.
                Err(error) => {
                    tracing::warn!(%error, "could not let somebody attach");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            },
            Some(_) = clients.join_next() => {}
            _ = &mut stopped => break,
        }
    }
    let parted = async { while clients.join_next().await.is_some() {} };
    tokio::time::timeout(PARTING, parted).await.unwrap_or_default();
}

async fn client(stream: UnixStream, hub: &Hub, commands: Arc<Commands>) -> io::Result<()> {
    let inside = stream.peer_cred()?.pid().and_then(|pid| u32::try_from(pid).ok());
    let (read, mut write) = stream.into_split();
    if inside.is_some_and(marked::is_inside_invocation) {
        let text = "the chat is for a human, and this process runs inside a turn of the companion".to_owned();
        return send(&mut write, &ServerLine::Error { text, key: None }).await;
    }
    let (now, mut lines) = hub.subscribe();
    for line in commands.greeting(now).await {
        send(&mut write, &line).await?;
    }
    let (answers, mut answered) = mpsc::channel(ANSWERS);
    let reader = tokio::spawn(listen_to(read, commands, answers));
    let result = loop {
        tokio::select! {
            line = lines.recv() => match line {
                Ok(published) => {
                    if let Err(error) = send_text(&mut write, &published.text).await {
                        break Err(error);
                    }
                    if published.last {
                        break Ok(());
                    }
                }
                Err(RecvError::Lagged(missed)) => {
                    let text = format!("{missed} lines were missed: this client is too slow; attach again");
                    break send(&mut write, &ServerLine::Line { level: Level::Error, text }).await;
                }
                Err(RecvError::Closed) => break Ok(()),
            },
            answer = answered.recv() => match answer {
                Some(answer) => if let Err(error) = send(&mut write, &answer).await {
                    break Err(error);
                },
                // It has closed its end.
                None => break Ok(()),
            },
        }
    };
    reader.abort();
    result
}

/// Carries out what one client asks, in order. Answers go through `answers`.
async fn listen_to(read: OwnedReadHalf, commands: Arc<Commands>, answers: mpsc::Sender<ServerLine>) {
    let mut input = BufReader::new(read);
    while let Ok(Some(line)) = next_line(&mut input).await {
        let answer = match line {
            Line::Whole(line) if line.iter().all(u8::is_ascii_whitespace) => None,
            Line::Whole(line) => match serde_json::from_slice(&line) {
                Ok(asked) => commands.carry_out(asked, &answers).await,
                Err(error) => Some(ServerLine::Error { text: format!("not understood: {error}"), key: None }),
            },
            Line::TooLong => Some(ServerLine::Error { text: "the line is too long".to_owned(), key: None }),
        };
        if let Some(answer) = answer
            && answers.send(answer).await.is_err()
        {
            return;
        }
    }
}

async fn send(write: &mut OwnedWriteHalf, line: &ServerLine) -> io::Result<()> {
    send_text(write, &format!("{}\n", serde_json::to_string(line)?)).await
}

async fn send_text(write: &mut OwnedWriteHalf, text: &str) -> io::Result<()> {
    tokio::time::timeout(WRITE_TIME, write.write_all(text.as_bytes())).await?
}
