//! Samples this machine's CPUs during a run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use zerolane_explain::{Explainer, Explanation, Options, Subject};

/// Between two looks whether it is over: the explainer wants to be called ten times a second.
const INTERVAL: Duration = Duration::from_millis(20);

/// Ends the sampling, also where what is sampled panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Samples the processes that this one has started, while `act` has them do something.
///
/// # Errors
/// Those of `act`. That this process may not sample is none: the explanation says so.
pub(crate) fn sampled<T>(act: impl FnOnce() -> Result<T>) -> Result<(T, Explanation)> {
    let over = AtomicBool::new(false);
    let (tell, started) = channel();
    thread::scope(|scope| {
        let ended = &over;
        let watching = scope.spawn(move || {
            let options = Options {
                folded: true,
                ..Options::default()
            };
            let mut explainer = Explainer::start(Subject::Children, options);
            let _ = tell.send(());
            while !ended.load(Ordering::Relaxed) {
                explainer.poll();
                thread::sleep(INTERVAL);
            }
            explainer.finish()
        });
        // It has begun, or has panicked, which is told when it is joined.
        let _ = started.recv();
        let done = {
            let _over = Over(ended);
            act()
        };
        let explanation = watching.join();
        let explanation = explanation.map_err(|_| anyhow!("the thread that samples panicked"))?;
        Ok((done?, explanation))
    })
}
