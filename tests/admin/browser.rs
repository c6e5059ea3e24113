//! The page at `/` in a real browser (H3): the real binary in every mode, with every scope of a pause, every reason of
//! a held removal and every state of a pool, on a desktop and on a phone. Any problem that the browser reports and any
//! alarm of the page fails the test.

mod commands;
mod scenes;
mod words;

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::stage::Stage;
use crate::support::browser::{Browser, PICTURES, Screen};

/// Maximum number of browsers: each needs a CPU.
static PLACES: Semaphore = Semaphore::const_new(2);

/// Every view of the page.
const VIEWS: [&str; 6] = ["pools", "services", "held", "nodes", "planes", "sources"];

/// An expression that is true if all data of the view was read and is current.
const LOADED: &str = "!document.body.classList.contains('old') \
    && !document.getElementById('one').classList.contains('stale') \
    && !document.getElementById('alarm').innerText.trim() \
    && ![...document.querySelectorAll('#who, #rows, #one')].some((part) => part.innerText.includes('reading …'))";

/// A script that returns the visual defects of the page.
const WRONG: &str = r"(() => {
    const wrong = [];
    for (const id of ['alarm', 'missed']) if (document.getElementById(id).innerText.trim()) wrong.push(document.getElementById(id).innerText);
    for (const part of document.querySelectorAll('.broken, .problem')) wrong.push(part.innerText);
    const odd = document.body.innerText.match(/.{0,60}(\bundefined\b|\bNaN\b|\bnull\b|\[object |Invalid Date).{0,60}/g);
    if (odd) wrong.push(...odd);
    const wide = document.documentElement.scrollWidth - innerWidth;
    if (wide > 0) wrong.push(`the page is ${wide} px wider than the screen`);
    return wrong;
})()";

/// An expression for all links of the view.
const LINKS: &str =
    "[...new Set([...document.querySelectorAll('[data-open]')].map((link) => link.dataset.open))]";

/// A browser, one of [`PLACES`].
struct Reader {
    browser: Browser,
    _permit: SemaphorePermit<'static>,
}

impl Reader {
    /// Starts a browser; returns `None` if there is no Chromium.
    async fn start() -> Option<Reader> {
        let permit = PLACES.acquire().await.expect("it is never closed");
        Some(Reader { browser: Browser::start().await?, _permit: permit })
    }

    /// Opens a view of this controller's page.
    async fn open(&mut self, stage: &Stage, fragment: &str) {
        self.browser.open(&format!("http://{}/#{fragment}", stage.admin)).await;
        self.browser.wait(&format!("document.readyState === 'complete' && {LOADED}")).await;
    }

    /// Asserts that the view has no defects.
    async fn is_right(&mut self, at: &str) {
        let wrong = self.browser.value(WRONG).await;
        let complaints = self.browser.complaints().await;
        assert_eq!(wrong, Value::Array(Vec::new()), "{at}");
        assert!(complaints.is_empty(), "{at}: {complaints:#?}");
    }

    async fn links(&mut self) -> Vec<String> {
        let links = self.browser.value(LINKS).await;
        links.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Opens the target of a link, and asserts that it has no defects. The link may have disappeared.
    async fn follow(&mut self, link: &str, at: &str) {
        let text = Value::from(link);
        let click = format!(
            "[...document.querySelectorAll('[data-open]')].find((link) => link.dataset.open === {text})?.click()"
        );
        self.browser.value(&click).await;
        self.browser.wait(LOADED).await;
        self.is_right(&format!("{at}: {link}")).await;
        self.picture(&format!("{at}: {link}"), false).await;
    }

    /// Opens every view and all its links, on both screens. Returns the opened views.
    async fn walk(&mut self, stage: &Stage, scene: &str) -> BTreeSet<String> {
        let mut opened = BTreeSet::new();
        for screen in [Screen::Desktop, Screen::Phone] {
            self.browser.resize(screen).await;
            for view in VIEWS {
                let at = format!("{scene}, {screen:?}, {view}");
                self.open(stage, &format!("view={view}")).await;
                self.is_right(&at).await;
                self.picture(&at, true).await;
                let mut links = BTreeSet::new();
                let mut next = self.links().await;
                while let Some(link) = next.pop() {
                    if links.insert(link.clone()) {
                        self.follow(&link, &at).await;
                        next.extend(self.links().await);
                    }
                }
                opened.extend(links);
            }
        }
        // The controller may end before the page sends the next request.
        self.browser.leave().await;
        opened
    }

    /// Writes a screenshot if `PAGE_PICTURES` names a folder.
    async fn picture(&mut self, name: &str, whole: bool) {
        if let Some(folder) = std::env::var_os(PICTURES) {
            let file = PathBuf::from(folder).join(format!("{}.png", name.replace(['/', ':', ',', ' '], "-")));
            self.browser.picture(&file, whole).await;
        }
    }

    /// Returns the text of a part of the page.
    async fn text(&mut self, id: &str) -> String {
        let text = self.browser.value(&format!("document.getElementById('{id}').innerText")).await;
        text.as_str().unwrap_or_default().to_owned()
    }
}

/// Returns a value of the address's fragment.
fn encoded(text: &str) -> String {
    text.replace('%', "%25").replace(':', "%3A").replace('/', "%2F")
}
