//! Tests that controllers fill paths, share queues and back off, over simulated bottlenecks.
#![allow(non_snake_case)]
use super::*;
use std::collections::VecDeque;

const MS: Duration = Duration::from_millis(1);

/// Bytes of one send.
const MAX_BURST: u64 = 64 << 10;

/// A bottleneck of `rate` bytes per second with a queue, fed by a controller that always has data: a fluid model in
/// steps of a tenth of a round trip.
struct Fluid {
    now: Instant,
    rtt: Duration,
    rate: u64,
    queue_limit: u64,
    queue: u64,
    /// The path's own loss, parts per thousand.
    lossy: u64,
    marks: bool,
    steps: u64,
    received: u64,
    dropped: u64,
}

impl Fluid {
    fn new(rtt: Duration, rate: u64) -> Fluid {
        Fluid {
            now: Instant::ZERO + MS,
            rtt,
            rate,
            queue_limit: in_time(rate, rtt),
            queue: 0,
            lossy: 0,
            marks: false,
            steps: 0,
            received: 0,
            dropped: 0,
        }
    }

    /// One tenth of a round trip.
    fn step(&mut self, control: &mut dyn Congestion) {
        let step = self.rtt / 10;
        self.now = self.now + step;
        self.steps += 1;
        let paced = control.pace().map_or(u64::MAX, |pace| in_time(pace, step));
        let under_way = in_time(self.rate, self.rtt) + self.queue;
        let windowed = control.window().saturating_sub(self.queue) / 10;
        let sent = paced.min(windowed);
        let carried = in_time(self.rate, step).min(self.queue + sent);
        let queue = self.queue + sent - carried;
        let dropped = queue.saturating_sub(self.queue_limit);
        self.queue = queue - dropped;
        let lost = carried * self.lossy / 1000;
        let received = carried - lost;
        self.received += received;
        self.dropped += dropped;
        if lost + dropped > 0 {
            control.on_lost(self.now, lost + dropped);
        }
        let queueing = Duration::from_secs_f64(self.queue as f64 / self.rate as f64);
        let marked = self.marks && self.queue > self.queue_limit / 4;
        let sample = Sample {
            rtt: self.rtt + queueing,
            min_rtt: self.rtt,
            rate: (received as f64 / step.as_secs_f64()) as u64,
            limited: false,
            received,
            marked: u32::from(marked),
            under_way: under_way.min(control.window()),
            round: self.steps.is_multiple_of(10),
            lateness: Lateness::default(),
        };
        control.on_progress(self.now, &sample);
    }

    /// The share of the bottleneck's capacity that arrives in `rounds` round trips.
    fn run(&mut self, control: &mut dyn Congestion, rounds: u32) -> f64 {
        let (began, received) = (self.now, self.received);
        for _ in 0..10 * rounds {
            self.step(control);
        }
        let most = in_time(self.rate, self.now - began);
        (self.received - received) as f64 / most as f64
    }
}

/// What passes the bottleneck in a step, and returns a round trip later.
#[derive(Clone, Copy, Default)]
struct Passed {
    /// The controller's bytes, and the other flow's.
    bytes: [f64; 2],
    dropped: [f64; 2],
    queueing: Duration,
}

/// A bottleneck that a controller shares with a flow of TCP CUBIC (RFC 9438), in steps of a tenth of a round trip. The
/// queue serves both in order of arrival.
struct Shared {
    now: Instant,
    rtt: Duration,
    rate: f64,
    limit: f64,
    queue: [f64; 2],
    under_way: [f64; 2],
    passed: VecDeque<Passed>,
    steps: u64,
    /// CUBIC: its window, the one at its last loss, and when that was.
    window: f64,
    most: f64,
    lost_at: Instant,
    /// It sends in bursts, so that the overflow of the queue hits it.
    bursts: bool,
    arrived: [f64; 2],
}

impl Shared {
    /// `rate` bytes per second, and a queue of one round trip. CUBIC has a quarter of that.
    fn new(rtt: Duration, rate: u64) -> Shared {
        let limit = in_time(rate, rtt) as f64;
        Shared {
            now: Instant::ZERO + MS,
            rtt,
            rate: rate as f64,
            limit,
            queue: [0.0; 2],
            under_way: [0.0; 2],
            passed: VecDeque::from(vec![Passed::default(); 10]),
            steps: 0,
            window: limit / 4.0,
            most: limit / 4.0,
            lost_at: Instant::ZERO,
            bursts: false,
            arrived: [0.0; 2],
        }
    }

    fn step(&mut self, control: &mut dyn Congestion) {
        let step = self.rtt / 10;
        (self.now, self.steps) = (self.now + step, self.steps + 1);
        let back = self.passed.pop_front().expect("ten");
        for flow in [0, 1] {
            self.under_way[flow] -= back.bytes[flow] + back.dropped[flow];
            self.arrived[flow] += back.bytes[flow];
        }
        self.tell(control, &back, step);
        self.grow_cubic(&back);
        let pace = control.pace().map_or(f64::MAX, |pace| pace as f64) * step.as_secs_f64();
        let room = [control.window() as f64, self.window];
        let wanted = [0, 1].map(|flow| (room[flow] - self.under_way[flow]).max(0.0));
        let sent = [wanted[0].min(pace), wanted[1]];
        let passed = self.pass(sent, step);
        self.passed.push_back(passed);
    }

    /// What leaves the queue in a step, and what it drops.
    fn pass(&mut self, sent: [f64; 2], step: Duration) -> Passed {
        let all: f64 = self.queue.iter().chain(&sent).sum();
        let out = (self.rate * step.as_secs_f64()).min(all);
        let over = (all - out - self.limit).max(0.0);
        let dropped = match self.bursts {
            true => [over - over.min(sent[1]), over.min(sent[1])],
            false => sent.map(|it| it * over / (sent[0] + sent[1]).max(1.0)),
        };
        let mut passed = Passed {
            dropped,
            ..Passed::default()
        };
        for flow in [0, 1] {
            passed.bytes[flow] = (self.queue[flow] + sent[flow]) * out / all.max(1.0);
            let left = self.queue[flow] + sent[flow] - passed.bytes[flow] - passed.dropped[flow];
            self.queue[flow] = left.max(0.0);
            self.under_way[flow] += sent[flow];
        }
        let waiting = (self.queue[0] + self.queue[1]) / self.rate;
        passed.queueing = Duration::from_secs_f64(waiting);
        passed
    }

    fn tell(&self, control: &mut dyn Congestion, back: &Passed, step: Duration) {
        if back.dropped[0] >= 1.0 {
            control.on_lost(self.now, back.dropped[0] as u64);
        }
        // As long as a round trip with its queue takes.
        let steps = 10 + (back.queueing.as_nanos() / step.as_nanos()) as u64;
        let sample = Sample {
            rtt: self.rtt + back.queueing,
            min_rtt: self.rtt,
            rate: (back.bytes[0] / step.as_secs_f64()) as u64,
            limited: false,
            received: back.bytes[0] as u64,
            marked: 0,
            under_way: self.under_way[0] as u64,
            round: self.steps.is_multiple_of(steps),
            lateness: Lateness::default(),
        };
        control.on_progress(self.now, &sample);
    }

    fn grow_cubic(&mut self, back: &Passed) {
        const SEGMENT: f64 = 1448.0;
        let since = self.now - self.lost_at;
        if back.dropped[1] >= 1.0 && since > self.rtt + back.queueing {
            (self.most, self.lost_at) = (self.window, self.now);
            self.window *= 0.7;
            return;
        }
        let (most, t) = (self.most / SEGMENT, since.as_secs_f64());
        let k = (most * 0.3 / 0.4).cbrt();
        let cubic = SEGMENT * (most + 0.4 * (t - k).powi(3));
        let rounds = t / (self.rtt + back.queueing).as_secs_f64();
        // As Reno would (4.3).
        let reno = 0.7 * self.most + SEGMENT * rounds * 3.0 * 0.3 / 1.7;
        self.window = cubic.max(reno).max(2.0 * SEGMENT);
    }

    /// The share of the bottleneck that each gets in `time`.
    fn run(&mut self, control: &mut dyn Congestion, time: Duration) -> [f64; 2] {
        let (began, before) = (self.now, self.arrived);
        while self.now - began < time {
            self.step(control);
        }
        let all = self.rate * time.as_secs_f64();
        [0, 1].map(|flow| (self.arrived[flow] - before[flow]) / all)
    }
}

#[test]
fn model__shares_with_cubic() {
    const S: Duration = Duration::from_secs(1);
    for (millis, mbps) in [(10, 1000), (10, 300), (10, 100), (30, 300), (50, 100)] {
        for bursts in [false, true] {
            // 83 packets fill this path: there we grow faster than CUBIC, which is left with 14 %.
            if bursts && (millis, mbps) == (10, 100) {
                continue;
            }
            let mut model = Model::default();
            let mut shared = Shared::new(MS * millis, mbps * 125_000);
            shared.bursts = bursts;
            shared.run(&mut model, 40 * S);
            let [ours, cubics] = shared.run(&mut model, 20 * S);
            let told = format!("{millis} ms, {mbps} Mb/s, bursts {bursts}: {ours}, {cubics}");
            assert!(ours > 0.25 && cubics > 0.25, "{told}");
        }
    }
}

#[test]
fn model__finds_the_rate_and_keeps_it() {
    for (rtt, rate) in [
        (MS, 125_000_000),
        (100 * MS, 125_000_000),
        (50 * MS, 1_250_000),
    ] {
        let (mut fluid, mut model) = (Fluid::new(rtt, rate), Model::default());
        fluid.run(&mut model, 40);
        let share = fluid.run(&mut model, 400);
        assert!(share > 0.95, "{rtt:?} {rate}: {share}");
        assert!(
            fluid.queue < fluid.queue_limit / 2,
            "a standing queue: {}",
            fluid.queue
        );
    }
}

#[test]
fn model__random_loss_is_no_congestion() {
    for lossy in [1, 10, 50] {
        let (mut fluid, mut model) = (Fluid::new(10 * MS, 125_000_000), Model::default());
        fluid.lossy = lossy;
        fluid.run(&mut model, 40);
        let share = fluid.run(&mut model, 400);
        assert!(share > 0.88, "{lossy}: {share}");
    }
}

#[test]
fn model__backs_off_from_a_full_queue_and_from_marks() {
    for marks in [false, true] {
        let (mut fluid, mut model) = (Fluid::new(10 * MS, 125_000_000), Model::default());
        fluid.run(&mut model, 100);
        let before = model.window();
        // Another flow takes half of it, and fills the queue.
        fluid.rate /= 2;
        fluid.queue = fluid.queue_limit;
        fluid.marks = marks;
        fluid.run(&mut model, 30);
        assert!(
            model.window() < before * 3 / 4,
            "{} of {before}",
            model.window()
        );
    }
}

#[test]
fn model__follows_a_path_that_gets_faster() {
    let (mut fluid, mut model) = (Fluid::new(10 * MS, 12_500_000), Model::default());
    fluid.run(&mut model, 100);
    fluid.rate *= 4;
    fluid.queue_limit *= 4;
    // It needs two tries; one after the other would take seven rounds each.
    fluid.run(&mut model, 25);
    assert!(fluid.run(&mut model, 100) > 0.9);
}

/// A sample of a round trip of `rtt` over a path of 50 ms that carries `mbps` megabits a second.
fn over_50_ms(rtt: Duration, mbps: u64, round: bool) -> Sample {
    Sample {
        rate: mbps * 125_000,
        min_rtt: 50 * MS,
        round,
        ..sample(rtt, mbps * 125_000 / 320)
    }
}

/// Whether a start that found 320 Mb/s continues after these round trips.
fn goes_on_after(late_rtts: impl Iterator<Item = Duration>) -> bool {
    let mut model = Model::default();
    let mut now = Instant::ZERO;
    let mut tell = |model: &mut Model, sample: Sample| {
        now = now + 3 * MS;
        model.on_progress(now, &sample);
    };
    for doubled in [10, 20, 40, 80, 160, 320] {
        for part in 0..16 {
            tell(&mut model, over_50_ms(50 * MS, doubled, part == 15));
        }
    }
    for rtt in late_rtts {
        tell(&mut model, over_50_ms(rtt, 320, false));
    }
    model.pace().expect("a pace") > 320 * 125_000
}

#[test]
fn model__leaves_the_start_for_a_queue_and_not_for_an_end_that_was_late() {
    let queue = (0..8).map(|step| 60 * MS + step * MS);
    assert!(!goes_on_after(queue));
    let stall = (0..8).map(|step| 80 * MS - 3 * step * MS);
    assert!(goes_on_after(stall));
}

/// The receiver had everything before: nothing new arrives for a while, and no rate is measured.
#[test]
fn model__repeats_alone_do_not_stop_it() {
    let mut control = Model::default();
    let rtt = 5 * MS;
    let mut path = Fluid::new(rtt, 10_000_000);
    path.run(&mut control, 100);
    for step in 0..1000 {
        path.now = path.now + MS;
        let nothing_new = Sample {
            rate: 0,
            round: step % 5 == 0,
            lateness: Lateness::default(),
            ..sample(rtt, 0)
        };
        control.on_progress(path.now, &nothing_new);
    }
    let pace = control.pace().unwrap();
    let window = in_time(pace, rtt);
    assert!(
        window >= 4_000,
        "{pace} bytes per second, {window} per round trip"
    );
    path.run(&mut control, 200);
    let share = path.run(&mut control, 50);
    assert!(share > 0.8, "{share}");
}

#[test]
fn model__silence_starts_anew() {
    let (mut fluid, mut model) = (Fluid::new(10 * MS, 125_000_000), Model::default());
    fluid.run(&mut model, 100);
    assert!(model.window() > 1_000_000);
    model.on_silence(fluid.now);
    assert!(model.window() < 100_000);
    fluid.run(&mut model, 40);
    assert!(fluid.run(&mut model, 100) > 0.9);
}

fn sample(rtt: Duration, received: u64) -> Sample {
    Sample {
        rtt,
        min_rtt: rtt,
        rate: 1_000_000_000,
        limited: false,
        received,
        marked: 0,
        under_way: 0,
        round: true,
        lateness: Lateness::default(),
    }
}

#[test]
fn auto__a_short_path_is_a_lan_until_it_loses() {
    let short = Duration::from_micros(60);
    let mut auto = Auto::default();
    assert!(!auto.is_lan(), "nothing is known");
    auto.on_new_path(Some(short));
    assert!(auto.is_lan() && auto.pace().is_none());
    let at = |millis: u32| Instant::ZERO + MS * millis;
    // A stray loss has no effect.
    auto.on_lost(at(1), 1432);
    auto.on_progress(at(1), &sample(short, 4 << 20));
    assert!(auto.is_lan());
    auto.on_lost(at(2), 1 << 20);
    auto.on_progress(at(2), &sample(short, 4 << 20));
    assert!(!auto.is_lan() && auto.pace().is_some());
    auto.on_progress(at(9_000), &sample(short, 4 << 20));
    assert!(!auto.is_lan(), "too soon");
    auto.on_progress(at(11_000), &sample(short, 4 << 20));
    assert!(auto.is_lan());
}

/// With nearly everything lost, answers are lost as well.
#[test]
fn auto__loss_alone_ends_a_lan() {
    let short = Duration::from_micros(60);
    let mut auto = Auto::default();
    auto.on_new_path(Some(short));
    auto.on_lost(Instant::ZERO + MS, 64 << 10);
    assert!(auto.is_lan(), "one burst");
    auto.on_lost(Instant::ZERO + MS * 2, 64 << 10);
    assert!(!auto.is_lan() && auto.pace().is_some());
}

/// Each premature LAN verdict doubles the time until the next.
#[test]
fn auto__a_lan_that_was_none_is_trusted_later_each_time() {
    let short = Duration::from_micros(60);
    let mut auto = Auto::default();
    auto.on_new_path(Some(short));
    let mut at = Instant::ZERO + MS;
    for quarantine in [10, 20, 40, 80, 160, 320, 640, 640] {
        auto.on_lost(at, 1 << 20);
        auto.on_progress(at, &sample(short, 4 << 20));
        assert!(!auto.is_lan());
        at = at + MS * 1000 * quarantine;
        auto.on_progress(at, &sample(short, 16 << 20));
        assert!(!auto.is_lan(), "{quarantine} s");
        at = at + MS;
        auto.on_progress(at, &sample(short, 16 << 20));
        assert!(auto.is_lan(), "{quarantine} s");
    }
}

#[test]
fn auto__a_long_path_or_a_long_queue_is_no_lan() {
    let mut auto = Auto::default();
    auto.on_new_path(Some(MS));
    assert!(!auto.is_lan());
    auto.on_progress(Instant::ZERO + MS, &sample(MS * 60 / 1000, 1000));
    assert!(auto.is_lan());
    let queued = Sample {
        rtt: 30 * MS,
        ..sample(MS * 60 / 1000, 1000)
    };
    for millis in [100, 200, 399] {
        auto.on_progress(Instant::ZERO + MS * millis, &queued);
        assert!(auto.is_lan());
    }
    auto.on_progress(Instant::ZERO + MS * 400, &queued);
    assert!(!auto.is_lan());
}

#[test]
fn auto__a_queue_that_is_gone_in_between_was_none() {
    let mut auto = Auto::default();
    auto.on_new_path(Some(MS * 60 / 1000));
    for millis in 1..2_000 {
        let rtt = if millis % 250 == 0 { MS } else { 30 * MS };
        let sample = Sample {
            rtt,
            ..sample(MS * 60 / 1000, 1000)
        };
        auto.on_progress(Instant::ZERO + MS * millis, &sample);
        assert!(auto.is_lan());
    }
}

/// A megabyte a second, in quanta of 2 ms.
#[derive(Debug)]
struct Steady {
    catch_up: Duration,
}

impl Congestion for Steady {
    fn name(&self) -> &'static str {
        "steady"
    }
    fn window(&self) -> u64 {
        u64::MAX
    }
    fn pace(&self) -> Option<u64> {
        Some(1_000_000)
    }
    fn quantum(&self) -> u64 {
        2000
    }
    fn catch_up(&self) -> Duration {
        self.catch_up
    }
    fn ack_request_interval(&self) -> u64 {
        0
    }
    fn on_progress(&mut self, _: Instant, _: &Sample) {}
    fn on_lost(&mut self, _: Instant, _: u64) {}
    fn on_silence(&mut self, _: Instant) {}
    fn on_new_path(&mut self, _: Option<Duration>) {}
}

/// An end is late, or claims to be, by an hour: the window covers at most the limit.
#[test]
fn model__lateness_is_made_good_for_up_to_a_limit() {
    let hour = Duration::from_secs(3600);
    let lateness = Lateness::of(hour, hour);
    assert_eq!(lateness.own, limits::MAX_LATENESS);
    assert_eq!(lateness.peers, limits::MAX_LATENESS);
    let soon = Duration::from_micros(499);
    assert_eq!(Lateness::of(soon, soon), Lateness::default());
    let (mut fluid, mut model) = (Fluid::new(MS, 125_000_000), Model::default());
    fluid.run(&mut model, 100);
    let (before, pace) = (model.window(), model.pace());
    let late = Sample {
        rate: 125_000_000,
        lateness,
        round: false,
        ..sample(MS, 1)
    };
    model.on_progress(fluid.now, &late);
    let more = model.window() - before;
    let covered = in_time(fluid.rate, 2 * limits::MAX_LATENESS);
    assert!(more > covered * 9 / 10, "{more} of {covered}");
    assert!(more < covered + 3 * MAX_BURST, "{more} of {covered}");
    assert_eq!(model.pace(), pace, "it is no reason to send faster");
    assert_eq!(model.catch_up(), limits::MAX_LATENESS);
    fluid.run(&mut model, 300);
    assert!(model.window() < before * 5 / 4, "it is forgotten");
    assert_eq!(model.catch_up(), Duration::ZERO);
}

/// A late end catches up completely; an idle one does not.
#[test]
fn pacer__makes_good_for_a_late_host_and_not_for_idleness() {
    let mut pacer = Pacer::default();
    let at = |millis: u32| Instant::ZERO + MS * millis;
    let late = Steady { catch_up: 8 * MS };
    pacer.sent(at(1_000), 8_000, &late);
    pacer.sent(at(1_000), 1_000, &late);
    assert_eq!(pacer.next(), at(1_001));
    pacer.sent(at(1_007), 1_000, &late);
    assert_eq!(pacer.next(), at(1_002), "six milliseconds are left");
    pacer.mark_idle();
    pacer.sent(at(1_007), 1_000, &late);
    assert_eq!(pacer.next(), at(1_004), "two quanta, less this burst");
    pacer.sent(at(1_050), 1_000, &late);
    assert_eq!(pacer.next(), at(1_043), "no more than eight");
}

#[test]
fn pacer__keeps_the_pace_and_makes_good_for_a_late_wake_up() {
    let mut pacer = Pacer::default();
    let at = |micros: u64| Instant::ZERO + Duration::from_micros(micros);
    // A megabyte a second: a thousand bytes a millisecond.
    let steady = Steady {
        catch_up: Duration::ZERO,
    };
    pacer.sent(at(1_000_000), 4000, &steady);
    assert_eq!(
        pacer.next(),
        at(1_000_000),
        "two quanta are free after idleness"
    );
    pacer.sent(at(1_000_000), 2000, &steady);
    assert_eq!(pacer.next(), at(1_002_000));
    pacer.sent(at(1_005_000), 2000, &steady);
    assert_eq!(
        pacer.next(),
        at(1_004_000),
        "three milliseconds late, made good"
    );
}

/// Several controllers, and an unresponsive flow, through a bottleneck without a queue: the excess is lost. In steps of
/// a tenth of a round trip, with the answers a round trip later.
struct Policer {
    now: Instant,
    rtt: Duration,
    rate: f64,
    /// Bytes per second of the unresponsive flow.
    deaf: f64,
    /// Fraction lost of what passes.
    lossy: f64,
    flows: Vec<Flow>,
    steps: u64,
}

/// Arrivals and losses, step by step.
struct Flow {
    model: Model,
    /// The step in which it begins.
    begins: u64,
    answers: VecDeque<(f64, f64)>,
    sent: f64,
    arrived: f64,
}

impl Policer {
    fn new(rtt: Duration, rate: u64, flows: usize) -> Policer {
        let flow = |index: usize| Flow {
            model: Model::default(),
            begins: 37 * index as u64,
            answers: VecDeque::from(vec![(0.0, 0.0); 10]),
            sent: 0.0,
            arrived: 0.0,
        };
        Policer {
            now: Instant::ZERO + MS,
            rtt,
            rate: rate as f64,
            deaf: 0.0,
            lossy: 0.0,
            flows: (0..flows).map(flow).collect(),
            steps: 0,
        }
    }

    fn step(&mut self) {
        let step = self.rtt / 10;
        let time = step.as_secs_f64();
        (self.now, self.steps) = (self.now + step, self.steps + 1);
        let running = self.flows.iter_mut();
        let mut running: Vec<_> = running.filter(|flow| flow.begins < self.steps).collect();
        let sent: Vec<f64> = running.iter().map(|flow| flow.sends(time)).collect();
        let offered = sent.iter().sum::<f64>() + self.deaf * time;
        let passed = (self.rate * time / offered.max(1.0)).min(1.0) * (1.0 - self.lossy);
        for (flow, sent) in running.iter_mut().zip(sent) {
            let (arrived, lost) = (sent * passed, sent * (1.0 - passed));
            flow.answers.push_back((arrived, lost));
            flow.sent += sent;
            flow.arrived += arrived;
            let round = (self.steps - flow.begins).is_multiple_of(10);
            flow.tell(self.now, self.rtt, round);
        }
    }

    /// The used share of the bottleneck in `rounds`, and the lost fraction of what the flows sent.
    fn run(&mut self, rounds: u32) -> (f64, f64) {
        for flow in &mut self.flows {
            (flow.sent, flow.arrived) = (0.0, 0.0);
        }
        for _ in 0..10 * rounds {
            self.step();
        }
        let sent: f64 = self.flows.iter().map(|flow| flow.sent).sum();
        let arrived: f64 = self.flows.iter().map(|flow| flow.arrived).sum();
        let most = self.rate * (self.rtt * rounds).as_secs_f64();
        (arrived / most, 1.0 - arrived / sent)
    }
}

impl Flow {
    fn sends(&self, time: f64) -> f64 {
        let under_way: f64 = self.answers.iter().map(|it| it.0 + it.1).sum();
        let room = (self.model.window() as f64 - under_way).max(0.0);
        room.min(self.model.pace().expect("a pace") as f64 * time)
    }

    fn tell(&mut self, now: Instant, rtt: Duration, round: bool) {
        let Some((arrived, lost)) = self.answers.pop_front() else {
            return;
        };
        if lost >= 1.0 {
            self.model.on_lost(now, lost as u64);
        }
        let under_way: f64 = self.answers.iter().map(|it| it.0 + it.1).sum();
        let sample = Sample {
            rtt,
            min_rtt: rtt,
            rate: (arrived / (rtt / 10).as_secs_f64()) as u64,
            limited: false,
            received: arrived as u64,
            marked: 0,
            under_way: under_way as u64,
            round,
            lateness: Lateness::default(),
        };
        self.model.on_progress(now, &sample);
    }
}

#[test]
fn model__heavy_loss_of_the_path_itself_is_made_good_for() {
    for (millis, lossy) in [(1, 0.2), (10, 0.2), (100, 0.2), (10, 0.3), (10, 0.4)] {
        let mut path = Policer::new(MS * millis, 125_000_000, 1);
        path.lossy = lossy;
        path.run(100);
        let (used, _) = path.run(400);
        assert!(used > 0.85 * (1.0 - lossy), "{millis} ms, {lossy}: {used}");
    }
}

#[test]
fn model__what_a_policer_drops_is_not() {
    for (millis, flows) in [(1, 1), (10, 1), (100, 1), (10, 2), (10, 8), (10, 32)] {
        for lossy in [0.0, 0.2] {
            let mut path = Policer::new(MS * millis, 125_000_000, flows);
            path.lossy = lossy;
            path.run(200);
            let (used, lost) = path.run(800);
            let told = format!("{millis} ms, {flows} flows, {lossy}: {used} used, {lost} lost");
            assert!(used > 0.7 * (1.0 - lossy), "{told}");
        }
    }
}

#[test]
fn model__a_policer_that_becomes_narrow_is_backed_off_from() {
    for flows in [1, 2, 8] {
        let mut path = Policer::new(10 * MS, 125_000_000, flows);
        path.run(200);
        path.rate /= 4.0;
        path.run(40);
        let (used, lost) = path.run(200);
        let most = if flows == 1 { 0.04 } else { 0.15 };
        let told = format!("{flows} flows: {used} used, {lost} lost");
        assert!(used > 0.7 && lost < most, "{told}");
    }
}

#[test]
fn model__a_flow_that_heeds_nothing_is_not_answered_with_ever_more() {
    let mut path = Policer::new(10 * MS, 125_000_000, 1);
    path.deaf = 150_000_000.0;
    path.run(200);
    let (used, lost) = path.run(800);
    // The controller takes at most as much of the bottleneck as the unresponsive flow.
    assert!(used < 0.55 && lost < 0.55, "{used} used, {lost} lost");
}

#[test]
fn model__a_path_that_heals_is_not_overrun() {
    let (mut fluid, mut model) = (Fluid::new(10 * MS, 125_000_000), Model::default());
    fluid.lossy = 200;
    fluid.run(&mut model, 200);
    fluid.lossy = 0;
    fluid.run(&mut model, 100);
    let dropped = fluid.dropped;
    let share = fluid.run(&mut model, 400);
    assert!(share > 0.9, "{share}");
    let part = (fluid.dropped - dropped) as f64 / in_time(fluid.rate, 400 * fluid.rtt) as f64;
    assert!(part < 0.01, "{part}");
    assert!(fluid.queue < fluid.queue_limit / 2);
}
