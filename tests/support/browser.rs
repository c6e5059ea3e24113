//! A headless Chromium with one page, driven by the DevTools protocol over a pipe. It records all problems that the
//! browser reports: exceptions, errors and warnings on the console, failed requests, and answers of 400 and above.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::kubernetes::skip;

/// Names of the program in distributions. The headless shell is the same engine without a window, and uses about a
/// third of the CPU time.
const NAMES: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];

/// The variable with the folder for screenshots, if any.
pub const PICTURES: &str = "PAGE_PICTURES";

/// Chromium reads commands from descriptor 3 and writes events to descriptor 4.
const PIPED: &str = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";

/// Maximum time of one command, on a machine that is busy with other tests.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum time until the page shows something.
const WITHIN: Duration = Duration::from_secs(60);

/// The size of the window, in CSS pixels.
#[derive(Clone, Copy, Debug)]
pub enum Screen {
    /// 1280 × 800.
    Desktop,
    /// 390 × 844, with touch.
    Phone,
}

/// A browser with one page.
pub struct Browser {
    _child: Child,
    _folder: TempDir,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    last: u64,
    complaints: Vec<String>,
}

/// Returns the path of Chromium: `CHROMIUM`, or a program of `PATH`. `None`: the test is skipped and logs that; if
/// `BROWSER_TESTS` is `required`, it fails instead.
fn program() -> Option<PathBuf> {
    let named = std::env::var_os("CHROMIUM").filter(|name| !name.is_empty()).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates =
        NAMES.iter().flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)));
    let found = named.or_else(|| candidates.find(|candidate| candidate.is_file()));
    if found.is_none() {
        skip("BROWSER_TESTS", "there is no Chromium in PATH; CHROMIUM names another one");
    }
    found
}

impl Browser {
    /// Starts a browser with an empty page; returns `None` if there is no Chromium.
    pub async fn start() -> Option<Browser> {
        let program = program()?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new("sh");
        command.args(["-c", PIPED, "chromium"]).arg(program);
        command.args(["--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"]);
        command.args(["--no-first-run", "--disable-extensions", "--disable-dev-shm-usage"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--no-proxy-server"]);
        command.args(["--renderer-process-limit=1", "--disable-site-isolation-trials"]);
        // Without screenshots the browser does not paint, which saves a third of the CPU time.
        if std::env::var_os(PICTURES).is_none() {
            command.arg("--enable-begin-frame-control");
        }
        command.arg(format!("--user-data-dir={}", folder.path().display())).env("HOME", folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().expect("a shell");
        let to = child.stdin.take().expect("it is piped");
        let from = BufReader::new(child.stdout.take().expect("it is piped"));
        let (session, complaints) = (None, Vec::new());
        let mut browser = Browser { _child: child, _folder: folder, to, from, session, last: 0, complaints };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" })).await;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach).await;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({})).await;
        }
        Some(browser)
    }

    /// Sends a command and returns its result.
    ///
    /// # Panics
    /// The browser refuses it, or has ended.
    pub async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let id = self.last;
        let mut command = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            command["sessionId"] = session.as_str().into();
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).await.expect("the browser reads");
        let answered = async {
            loop {
                let mut message = Vec::new();
                let length = self.from.read_until(0, &mut message).await.expect("the browser writes");
                assert!(length > 0, "{method}: the browser has ended");
                message.pop();
                let message: Value = serde_json::from_slice(&message).expect("it writes JSON");
                if message["id"] == id {
                    return message;
                }
                if let Some(complaint) = complaint(&message) {
                    self.complaints.push(complaint);
                }
            }
        };
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, answered).await;
        let answer = answer.unwrap_or_else(|_| panic!("{method}: the browser does not answer"));
        assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        answer["result"].clone()
    }

    /// Sets the size of the page.
    pub async fn resize(&mut self, screen: Screen) {
        let (width, height, mobile) = match screen {
            Screen::Desktop => (1280, 800, false),
            Screen::Phone => (390, 844, true),
        };
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile });
        self.call("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// Runs this script before the scripts of each page that is opened from now on.
    pub async fn prepare(&mut self, script: &str) {
        self.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": script })).await;
    }

    /// Opens an address, as if it were typed.
    pub async fn open(&mut self, address: &str) {
        // If only the fragment differed, the browser would load nothing.
        self.leave().await;
        let opened = self.call("Page.navigate", json!({ "url": address })).await;
        assert!(opened["errorText"].is_null(), "{address}: {opened}");
    }

    /// Opens an empty page, and drops the recorded problems.
    pub async fn leave(&mut self) {
        self.call("Page.navigate", json!({ "url": "about:blank" })).await;
        self.complaints().await;
    }

    /// Returns the value of an expression on the page.
    ///
    /// # Panics
    /// It throws.
    pub async fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true });
        let answer = self.call("Runtime.evaluate", parameters).await;
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression on the page is true.
    ///
    /// # Panics
    /// It does not become true in time; the panic has the text of the page.
    pub async fn wait(&mut self, expression: &str) {
        let until = format!(
            "new Promise((done) => {{ const end = Date.now() + {}; const look = () => ({expression}) ? done(true) \
             : Date.now() > end ? done(document.body.innerText) : setTimeout(look, 20); look(); }})",
            WITHIN.as_millis()
        );
        let value = self.value(&until).await;
        assert_eq!(value, true, "{expression}: not within {WITHIN:?}; complaints: {:?}", self.complaints);
    }

    /// Writes a screenshot as a PNG.
    pub async fn picture(&mut self, file: &Path, whole: bool) {
        let shot = json!({ "captureBeyondViewport": whole });
        let answer = self.call("Page.captureScreenshot", shot).await;
        let bytes = answer["data"].as_str().expect("an image");
        let engine = &base64::engine::general_purpose::STANDARD;
        let bytes = base64::Engine::decode(engine, bytes).expect("base64");
        std::fs::write(file, bytes).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }

    /// Returns the recorded problems since the last call.
    pub async fn complaints(&mut self) -> Vec<String> {
        // Events before this answer have been read when it arrives.
        self.value("1").await;
        std::mem::take(&mut self.complaints)
    }
}

/// Returns the problem in this message of the browser, if any.
fn complaint(message: &Value) -> Option<String> {
    let of = &message["params"];
    let is_wrong = match message["method"].as_str()? {
        "Runtime.exceptionThrown" => true,
        "Runtime.consoleAPICalled" => matches!(of["type"].as_str(), Some("error" | "warning" | "assert")),
        "Log.entryAdded" => matches!(of["entry"]["level"].as_str(), Some("error" | "warning")),
        // The page cancels requests that it no longer needs.
        "Network.loadingFailed" => of["canceled"] != true,
        "Network.responseReceived" => of["response"]["status"].as_u64().is_some_and(|status| status >= 400),
        _ => false,
    };
    is_wrong.then(|| message.to_string())
}
