//! The Messages API on loopback: answers by script, streams as the real one does, and records
//! everything that it receives.
//!
//! The server lives on a thread of its own with its own runtime, so that tests stay plain threads
//! and processes. Rules are asked in the order newest first; what no rule answers goes to the
//! stand-in's brain.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::Response;
use kael_runner::standin::brain;
use serde_json::{Value, json};
use tokio::sync::mpsc as async_mpsc;

use super::answer::{stream_answer, whole};
use super::reply::{Reply, What};
use super::request::Request;

type Rule = Box<dyn FnMut(&Request) -> Option<Reply> + Send>;

/// The running stub. Dropping it closes its port and ends its thread.
pub struct Stub {
    shared: Arc<Shared>,
    address: SocketAddr,
    control: async_mpsc::UnboundedSender<Control>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    requests: Mutex<Vec<Request>>,
    arrived: Condvar,
    rules: Mutex<Vec<Rule>>,
    next_id: AtomicU64,
}

enum Control {
    Refuse(mpsc::Sender<()>),
    Listen(mpsc::Sender<()>),
    End,
}

impl Stub {
    /// Listens on a free port.
    pub fn start() -> Self {
        let shared = Arc::new(Shared {
            requests: Mutex::default(),
            arrived: Condvar::new(),
            rules: Mutex::default(),
            next_id: AtomicU64::new(1),
        });
        let (control, commands) = async_mpsc::unbounded_channel();
        let (ready, started) = mpsc::channel();
        let for_server = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("messages-api-stub".into())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(serve(for_server, commands, ready));
            })
            .unwrap();
        let address = started.recv().expect("the stub could not listen on loopback");
        Self { shared, address, control, thread: Some(thread) }
    }

    /// For `ANTHROPIC_BASE_URL`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds a rule; it may answer any main-conversation request, or pass with `None`.
    pub fn on(&self, rule: impl FnMut(&Request) -> Option<Reply> + Send + 'static) {
        self.shared.rules.lock().unwrap().push(Box::new(rule));
    }

    /// Answers every request whose last human text contains `needle`.
    pub fn on_text(&self, needle: &str, reply: Reply) {
        let needle = needle.to_owned();
        self.on(move |request| request.last_human().contains(&needle).then(|| reply.clone()));
    }

    /// Answers the first `times` requests whose last human text contains `needle`. 2.1.332 asks five
    /// times in all when it gets a 400: use [`Stub::on_text`] with [`Stub::clear_rules`] there.
    pub fn on_text_times(&self, needle: &str, times: usize, reply: Reply) {
        let needle = needle.to_owned();
        let mut left = times;
        self.on(move |request| {
            let hit = left > 0 && request.last_human().contains(&needle);
            left -= usize::from(hit);
            hit.then(|| reply.clone())
        });
    }

    /// Answers the next main-conversation request, whatever it says.
    pub fn once(&self, reply: Reply) {
        self.on_text_times("", 1, reply);
    }

    /// A tool turn: a request with `needle` as its last human text gets `call`, and once the results
    /// are there, `answer`.
    pub fn on_tool_turn(&self, needle: &str, call: Reply, answer: Reply) {
        let needle = needle.to_owned();
        self.on(move |request| {
            let hit = request.last_human().contains(&needle);
            hit.then(|| if request.ends_with_results() { answer.clone() } else { call.clone() })
        });
    }

    /// Forgets all rules.
    pub fn clear_rules(&self) {
        self.shared.rules.lock().unwrap().clear();
    }

    /// Everything received so far.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// The main-conversation requests so far.
    pub fn main_requests(&self) -> Vec<Request> {
        self.requests().into_iter().filter(Request::is_main).collect()
    }

    /// The newest main-conversation request.
    pub fn last_main(&self) -> Request {
        self.main_requests().pop().expect("the API received no request")
    }

    /// Blocks until that many main-conversation requests have come in.
    pub fn wait_main(&self, count: usize, deadline: Duration) -> Vec<Request> {
        let until = Instant::now() + deadline;
        let mut requests = self.shared.requests.lock().unwrap();
        loop {
            let main: Vec<Request> = requests.iter().filter(|r| r.is_main()).cloned().collect();
            if main.len() >= count {
                return main;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{} of {count} requests came within {deadline:?}", main.len());
            requests = self.shared.arrived.wait_timeout(requests, left).unwrap().0;
        }
    }

    /// Closes the port: connections are refused until [`Stub::listen`].
    pub fn refuse(&self) {
        self.command(Control::Refuse);
    }

    /// Opens the same port again.
    pub fn listen(&self) {
        self.command(Control::Listen);
    }

    fn command(&self, make: impl FnOnce(mpsc::Sender<()>) -> Control) {
        let (done, wait) = mpsc::channel();
        self.control.send(make(done)).expect("the stub's thread has ended");
        wait.recv().expect("the stub's thread has ended");
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        let asked = self.control.send(Control::End).is_ok();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && asked
            && !std::thread::panicking()
        {
            panic!("the stub's thread panicked");
        }
    }
}

async fn serve(
    shared: Arc<Shared>,
    mut commands: async_mpsc::UnboundedReceiver<Control>,
    ready: mpsc::Sender<SocketAddr>,
) {
    let router = Router::new().fallback(receive).with_state(shared);
    let listen = async |address: SocketAddr| {
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = router.clone();
        (address, tokio::spawn(async move { axum::serve(listener, router).await }))
    };
    let (address, mut server) = listen(SocketAddr::from(([127, 0, 0, 1], 0))).await;
    ready.send(address).expect("the starter of the stub is gone");
    while let Some(command) = commands.recv().await {
        match command {
            Control::Refuse(done) => {
                server.abort();
                assert!((&mut server).await.is_err(), "the stub's server ended by itself");
                done.send(()).expect("the caller is gone");
            }
            Control::Listen(done) => {
                server = listen(address).await.1;
                done.send(()).expect("the caller is gone");
            }
            Control::End => break,
        }
    }
    server.abort();
}

async fn receive(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let request = {
        let mut requests = shared.requests.lock().unwrap();
        let request = Request {
            index: requests.len(),
            at: Instant::now(),
            method: method.to_string(),
            path: uri.to_string(),
            headers: headers
                .iter()
                .map(|(name, value)| {
                    (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
                })
                .collect::<BTreeMap<_, _>>(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
        };
        requests.push(request.clone());
        shared.arrived.notify_all();
        request
    };
    if method == Method::HEAD {
        return answer(StatusCode::OK, Body::empty());
    }
    match (method, uri.path()) {
        (Method::POST, "/v1/messages") => message(&shared, &request).await,
        (Method::POST, "/v1/messages/count_tokens") => {
            json_answer(StatusCode::OK, &json!({"input_tokens": request.tokens()}))
        }
        _ => json_answer(StatusCode::NOT_FOUND, &error("not_found_error", "the stub has no such path")),
    }
}

async fn message(shared: &Shared, request: &Request) -> Response {
    let reply = if request.is_main() {
        let mut rules = shared.rules.lock().unwrap();
        rules.iter_mut().rev().find_map(|rule| rule(request)).unwrap_or_else(Reply::brain)
    } else {
        Reply::text(&brain::summary(&request.body))
    };
    tokio::time::sleep(reply.delay).await;
    if let Some(gate) = &reply.gate {
        gate.pass().await;
    }
    let blocks = match &reply.what {
        What::Error { status, kind, message, headers } => {
            let status = StatusCode::from_u16(*status).unwrap();
            let mut response = json_answer(status, &error(kind, message));
            for (name, value) in headers {
                let name: axum::http::HeaderName = name.parse().unwrap();
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            return response;
        }
        What::Hang => std::future::pending::<Vec<Value>>().await,
        What::Brain => brain::answer(&request.body).blocks,
        What::Blocks(blocks) => blocks.clone(),
        What::ErrorEvent(_) => vec![json!({"type": "text", "text": "this stream will"})],
    };
    let message = whole(shared.next_id.fetch_add(1, Ordering::Relaxed), request, &reply, blocks);
    if request.body["stream"] == json!(true) {
        stream_answer(&reply, &message)
    } else {
        json_answer(StatusCode::OK, &message)
    }
}

pub(crate) fn error(kind: &str, message: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

pub(crate) fn json_answer(status: StatusCode, value: &Value) -> Response {
    let mut response = answer(status, Body::from(value.to_string()));
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

pub(crate) fn answer(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}
