//! An MCP client that speaks JSON-RPC to the product's own server.

use serde_json::{Value, json};

use super::PATIENCE;
use super::companion::Companion;
use super::process::{Outcome, Running};

/// A running server and the number of the next call.
pub struct Client {
    pub running: Running,
    next: u64,
}

impl Client {
    /// Starts the companion's server and says nothing yet.
    pub fn start(companion: &Companion) -> Self {
        Self { running: Running::spawn(&mut companion.command(&["mcp"])), next: 1 }
    }

    /// Starts the companion's server and shakes hands.
    pub fn connect(companion: &Companion) -> Self {
        let mut client = Self::start(companion);
        client.initialize();
        client
    }

    /// Shakes hands, and gives what the server says of itself.
    pub fn initialize(&mut self) -> Value {
        let about = self.call(
            "initialize",
            &json!({
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": { "name": "a test", "version": "1" },
            }),
        );
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        about["result"].clone()
    }

    /// Writes one line.
    pub fn send(&mut self, message: &Value) {
        self.running.write(format!("{message}\n"));
    }

    /// Calls a method and gives the whole answer.
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        let id = self.next;
        self.next += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        let answer = |line: &str| -> Option<Value> {
            serde_json::from_str::<Value>(line).ok().filter(|value| value["id"] == id)
        };
        let line = self.running.wait_line(method, PATIENCE, |line| answer(line).is_some());
        answer(&line).unwrap()
    }

    /// Calls a tool by the end of its name and gives its result, which may be an error of the tool.
    pub fn tool(&mut self, name: &str, arguments: &Value) -> Value {
        let name = format!("thread_rebuild_{name}");
        self.call("tools/call", &json!({ "name": name, "arguments": arguments }))["result"].clone()
    }

    /// Calls a tool that must succeed and gives what it answers. Text and structure must say the same.
    #[track_caller]
    pub fn done(&mut self, name: &str, arguments: &Value) -> Value {
        let result = self.tool(name, arguments);
        assert_eq!(result["isError"], false, "{result:#}");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), result["structuredContent"]);
        result["structuredContent"].clone()
    }

    /// Calls a tool that must refuse and gives what it says.
    #[track_caller]
    pub fn refused(&mut self, name: &str, arguments: &Value) -> String {
        let result = self.tool(name, arguments);
        assert_eq!(result["isError"], true, "{result:#}");
        assert!(result.get("structuredContent").is_none(), "an error has no result in the tool's schema");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Closes its input; it must end by itself, and must have written nothing but the protocol.
    pub fn end(self) -> Outcome {
        let outcome = self.running.wait(PATIENCE).expect_code(0);
        for line in &outcome.lines {
            let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            assert_eq!(value["jsonrpc"], "2.0");
        }
        outcome
    }
}
