//! Debian's chromium, headless, steered over its DevTools protocol (`--remote-debugging-pipe`: messages of JSON, each
//! ended by a zero byte, on descriptors 3 and 4). It needs no network, and a page may be narrower than its windows.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::png::{Pixels, from_base64};

/// How long the browser may take for an answer.
const LIMIT: Duration = Duration::from_secs(60);

/// How a page is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// What the page is told of the reader's wish: `prefers-color-scheme`.
    pub(crate) is_dark: bool,
}

pub(crate) struct Browser {
    process: Child,
    to: File,
    from: Receiver<Value>,
    last_id: u64,
    session: Value,
    log: PathBuf,
    /// What the pages complained of since they were opened.
    complaints: Vec<String>,
}

impl Browser {
    /// Starts it, its files in `dir`.
    pub(crate) fn start(dir: &Path) -> Self {
        let (to, from, log) = (dir.join("to"), dir.join("from"), dir.join("browser.log"));
        let made = Command::new("mkfifo").args([&to, &from]).status().unwrap();
        assert!(made.success(), "no pipes");
        let script = r#"exec chromium "$@" 3<"$TO" 4>"$FROM""#;
        let process = Command::new("bash")
            .args(["-c", script, "chromium", "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--hide-scrollbars", "--force-color-profile=srgb"])
            .arg(format!("--user-data-dir={}", dir.join("profile").display()))
            .envs([("TO", &to), ("FROM", &from)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        // Open for both, so that this does not wait for the browser, which may be dead.
        let open = |path| File::options().read(true).write(true).open(path).unwrap();
        let (to, answers) = (open(&to), open(&from));
        let (sender, from) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(answers).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { return };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let (session, complaints) = (Value::Null, Vec::new());
        let mut browser = Browser { process, to, from, last_id: 0, session, log, complaints };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].clone();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({}));
        }
        browser
    }

    /// Opens a page and returns what it complained of while it loaded.
    pub(crate) fn open(&mut self, page: &Path, view: View) -> Vec<String> {
        let View { width, height, is_dark } = view;
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = json!({ "name": "prefers-color-scheme", "value": if is_dark { "dark" } else { "light" } });
        self.call("Emulation.setEmulatedMedia", json!({ "features": [scheme] }));
        self.complaints.clear();
        self.call("Page.navigate", json!({ "url": format!("file://{}", page.display()) }));
        while self.next()["method"] != "Page.loadEventFired" {}
        // Whatever the page complains of is told before the answer to this.
        self.evaluate("0");
        self.complaints.clone()
    }

    /// The value of an expression of JavaScript on the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let said = self.call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }));
        assert!(said["exceptionDetails"].is_null(), "{said}");
        said["result"]["value"].clone()
    }

    /// The page's part that is in the window, as PNG.
    pub(crate) fn screenshot(&mut self) -> Vec<u8> {
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        from_base64(shot["data"].as_str().expect("a picture"))
    }

    /// The same, decoded.
    pub(crate) fn pixels(&mut self) -> (Pixels, Vec<u8>) {
        let png = self.screenshot();
        (Pixels::decode(&png), png)
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": params });
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let said = self.next();
            if said["id"] == self.last_id {
                assert!(said["error"].is_null(), "{method}: {said}");
                return said["result"].clone();
            }
        }
    }

    /// The next message; complaints are kept.
    fn next(&mut self) -> Value {
        let Ok(said) = self.from.recv_timeout(LIMIT) else {
            panic!("the browser says nothing: {}", std::fs::read_to_string(&self.log).unwrap_or_default());
        };
        let is_complaint = match said["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => said["params"]["type"] == "error",
            Some("Log.entryAdded") => said["params"]["entry"]["level"] == "error",
            _ => false,
        };
        if is_complaint {
            self.complaints.push(said["params"].to_string());
        }
        said
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends its own processes; killed, it would leave them.
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let ended = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            self.process.try_wait().is_ok_and(|status| status.is_some())
        });
        if !ended {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}
