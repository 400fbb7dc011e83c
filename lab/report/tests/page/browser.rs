//! Tests the page in a real browser: headless Chromium, driven over a pipe (its DevTools protocol, no port, no network).

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use data_encoding::BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::made;
use crate::{html, printed, report_of};

/// A browser that says nothing for so long hangs.
const WATCHDOG: Duration = Duration::from_secs(120);

/// A browser with one empty page.
struct Browser {
    child: Child,
    to: ChildStdin,
    /// What it says, message by message; closed when it ends.
    from: Receiver<Vec<u8>>,
    number: u64,
    session: String,
    /// What was said while nothing was asked: console and log among it.
    events: Vec<Value>,
    /// Kept until the browser has ended.
    _home: TempDir,
}

impl Browser {
    /// `None` where Chromium is not installed or does not start, which is said.
    fn start() -> Option<Browser> {
        let program = ["/usr/bin/chromium", "/usr/bin/chromium-browser"];
        let Some(program) = program.iter().find(|it| Path::new(it).exists()) else {
            println!("skipped: Chromium is not installed");
            return None;
        };
        let home = tempfile::tempdir().unwrap();
        // Chromium takes commands from descriptor 3 and answers on 4.
        let script = "exec \"$0\" \"$@\" 3<&0 4>&1 >/dev/null 2>&1";
        let mut child = Command::new("sh")
            .args(["-c", script, program])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", home.path().display()))
            .env("HOME", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut browser = Browser {
            to: child.stdin.take().unwrap(),
            from: messages(child.stdout.take().unwrap()),
            child,
            number: 0,
            session: String::new(),
            events: Vec::new(),
            _home: home,
        };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"}));
        let target = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.ask("Target.attachToTarget", target);
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// The answer to a command.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.to.write_all(message.to_string().as_bytes()).unwrap();
        self.to.write_all(&[0]).unwrap();
        loop {
            let said = self.next();
            if said["id"] == self.number {
                assert!(said["error"].is_null(), "{method}: {said}");
                return said["result"].clone();
            }
            self.events.push(said);
        }
    }

    fn next(&mut self) -> Value {
        let message = self.from.recv_timeout(WATCHDOG);
        let message = message.expect("Chromium hangs, or has ended");
        serde_json::from_slice(&message).unwrap()
    }

    /// Shows a file so wide, in a colour scheme, and waits until it is loaded.
    fn show(&mut self, page: &Path, width: u32, scheme: &str) {
        let metrics =
            json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600});
        self.ask("Emulation.setDeviceMetricsOverride", metrics);
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.ask("Emulation.setEmulatedMedia", media);
        self.events.clear();
        let url = format!("file://{}", page.display());
        self.ask("Page.navigate", json!({"url": url}));
        while !self
            .events
            .iter()
            .any(|it| it["method"] == "Page.loadEventFired")
        {
            let said = self.next();
            self.events.push(said);
        }
    }

    fn evaluate(&mut self, script: &str) -> Value {
        let params = json!({"expression": script, "returnByValue": true});
        let result = self.ask("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{result}");
        result["result"]["value"].clone()
    }

    /// Errors and warnings of the console, and whatever was fetched but the page itself.
    fn complaints(&self) -> Vec<&Value> {
        let complaint = |it: &&Value| match it["method"].as_str().unwrap_or_default() {
            "Log.entryAdded" | "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" => true,
            "Network.requestWillBeSent" => {
                let url = it["params"]["request"]["url"].as_str().unwrap_or_default();
                !url.starts_with("file:") && !url.starts_with("data:")
            }
            _ => false,
        };
        self.events.iter().filter(complaint).collect()
    }

    fn screenshot(&mut self, to: &Path) {
        let params = json!({"format": "png", "captureBeyondViewport": true});
        let image = self.ask("Page.captureScreenshot", params);
        let image = BASE64.decode(image["data"].as_str().unwrap().as_bytes());
        // The screenshots are for people to inspect, and the directory may belong to another user.
        if let Err(why) = fs::write(to, image.unwrap()) {
            println!("no image at {}: {why}", to.display());
        }
    }
}

/// The messages that are read from there, each ended by a zero, by a thread of its own.
fn messages(from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (to, messages) = mpsc::channel();
    thread::spawn(move || {
        for message in BufReader::new(from).split(0) {
            let Ok(message) = message else { return };
            if to.send(message).is_err() {
                return;
            }
        }
    });
    messages
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Elements that reach beyond the page, those that scroll by themselves apart; and charts without a size, by name.
const FAULTS: &str = "(() => {
    const faults = [];
    const wide = document.documentElement.scrollWidth;
    if (wide > innerWidth) faults.push('the page is ' + wide + ' wide');
    for (const chart of document.querySelectorAll('svg.chart')) {
        const box = chart.getBoundingClientRect();
        if (box.width < 250 || box.height < 40) faults.push(chart.id + ' has no size');
        for (const text of chart.querySelectorAll('text')) {
            const it = text.getBoundingClientRect();
            if (it.left < box.left - 1 || it.right > box.right + 1 || it.top < box.top - 1 || it.bottom > box.bottom + 1)
                faults.push(chart.id + ' cuts off ' + text.textContent);
        }
    }
    return faults;
})()";

/// Words of a chart that lie on each other.
const OVERLAPS: &str = "(() => {
    const faults = [];
    for (const chart of document.querySelectorAll('svg.chart')) {
        const boxes = [...chart.querySelectorAll('text')].map(it => [it.textContent, it.getBoundingClientRect()]);
        for (let i = 0; i < boxes.length; i++) for (let j = 0; j < i; j++) {
            const [a, b] = [boxes[i][1], boxes[j][1]];
            const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
            const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
            if (x > 1 && y > 4) faults.push(chart.id + ': ' + boxes[i][0] + ' on ' + boxes[j][0]);
        }
    }
    return faults;
})()";

/// The least contrast of text against what is behind it, as WCAG computes it.
const CONTRAST: &str = "(() => {
    const part = v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    const light = c => { const [r, g, b] = c.match(/[0-9.]+/g).map(Number); return .2126 * part(r) + .7152 * part(g) + .0722 * part(b); };
    const back = light(getComputedStyle(document.body).backgroundColor);
    let least = 99;
    for (const it of document.querySelectorAll('p, td, th, li, h1, h2, summary, figcaption, svg text')) {
        const style = getComputedStyle(it);
        const own = light(it.ownerSVGElement ? style.fill : style.color);
        least = Math.min(least, (Math.max(own, back) + .05) / (Math.min(own, back) + .05));
    }
    return least;
})()";

#[test]
fn page__in_a_browser_light_and_dark_wide_and_narrow() {
    let report = report_of(printed());
    let charts = report.sections.iter().map(|it| it.charts.len()).sum();
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("report.html");
    fs::write(&page, html(&report)).unwrap();
    look_at(&page, charts, "report");
}

#[test]
#[ignore = "needs a report: ZEROLANE_REPORT=DIR"]
fn made__in_a_browser_light_and_dark_wide_and_narrow() {
    let sections = made::json()["sections"].take();
    let sections = sections.as_array().unwrap().iter();
    let charts = sections.map(|it| it["charts"].as_array().unwrap().len());
    let page = made::directory().join("report.html");
    look_at(&page, charts.sum(), "made");
}

/// Looks at a page with so many charts in all four ways, and keeps the images for those who want to look at them.
fn look_at(page: &Path, charts: usize, name: &str) {
    let images = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let mut backgrounds = Vec::new();
    for (width, scheme) in [
        (1280, "light"),
        (1280, "dark"),
        (400, "light"),
        (400, "dark"),
    ] {
        browser.show(page, width, scheme);
        let at = format!("{width} px, {scheme}");
        let found = browser.evaluate("document.querySelectorAll('svg.chart').length");
        assert_eq!(found, charts, "{at}");
        assert_eq!(browser.evaluate(FAULTS), json!([]), "{at}");
        assert_eq!(browser.evaluate(OVERLAPS), json!([]), "{at}");
        let contrast = browser.evaluate(CONTRAST).as_f64().unwrap();
        assert!(contrast >= 4.5, "{at}: contrast {contrast}");
        let background = browser.evaluate("getComputedStyle(document.body).backgroundColor");
        backgrounds.push(background);
        assert!(
            browser.complaints().is_empty(),
            "{at}: {:?}",
            browser.complaints()
        );
        browser.screenshot(&images.join(format!("{name}-{width}-{scheme}.png")));
    }
    assert_eq!(backgrounds[0], backgrounds[2]);
    assert_ne!(backgrounds[0], backgrounds[1], "the scheme changes nothing");
}
