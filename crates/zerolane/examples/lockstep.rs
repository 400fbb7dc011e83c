use std::sync::atomic::Ordering;
use std::time::Instant;
use zerolane::keys as _;
use zerolane::*;

fn pair(options: &Options) -> (Connection, Connection) {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options.clone()).unwrap();
    let address = endpoint.local_addr();
    let t = std::thread::spawn(move || {
        let c = endpoint.accept(None).unwrap().unwrap();
        (c, endpoint)
    });
    let a = Connection::connect(address, options).unwrap();
    let (b, e) = t.join().unwrap();
    std::mem::forget(e);
    (a, b)
}

struct Side {
    c: Connection,
    mem: ExportedRegion,
    peer: Option<RegionKey>,
}

#[inline(never)]
pub fn measured(mode: &str, n: u64, a: &mut Side, b: &mut Side) {
    let un = Work::default().unsignalled();
    match mode {
        "put" => {
            for i in 1..=n {
                let (ka, kb) = (a.peer.as_ref().unwrap(), b.peer.as_ref().unwrap());
                a.c.post_put_inline(ka, 0, &i.to_ne_bytes(), un).unwrap();
                a.c.poll().unwrap();
                while b.mem.word(0).load(Ordering::Acquire) != i {
                    b.c.poll().unwrap();
                }
                b.c.post_put_inline(kb, 0, &i.to_ne_bytes(), un).unwrap();
                b.c.poll().unwrap();
                while a.mem.word(0).load(Ordering::Acquire) != i {
                    a.c.poll().unwrap();
                }
            }
        }
        "empty" => {
            for _ in 0..n {
                a.c.poll().unwrap();
            }
        }
        "fetch" => {
            for _ in 0..n {
                let op = FetchOp::Add(1);
                a.c.post_fetch_op(a.peer.as_ref().unwrap(), 0, op, Work::default())
                    .unwrap();
                a.c.poll().unwrap();
                b.c.poll().unwrap();
                while a.c.poll().unwrap().is_none() {
                    b.c.poll().unwrap();
                }
            }
        }
        "get" => {
            let mut region = Some(Region::anonymous(8).unwrap());
            for _ in 0..n {
                a.c.post_get(
                    a.peer.as_ref().unwrap(),
                    0,
                    region.take().unwrap(),
                    Work::default(),
                )
                .unwrap();
                a.c.poll().unwrap();
                b.c.poll().unwrap();
                loop {
                    if let Some(done) = a.c.poll().unwrap() {
                        region = Some(done.into_region());
                        break;
                    }
                    b.c.poll().unwrap();
                }
            }
        }
        "msg" => {
            a.c.post_message_recv(None).unwrap();
            b.c.post_message_recv(None).unwrap();
            for i in 1..=n {
                a.c.post_message(&i.to_ne_bytes(), None, un).unwrap();
                a.c.poll().unwrap();
                while b.c.poll().unwrap().is_none() {}
                b.c.post_message_recv(None).unwrap();
                b.c.post_message(&i.to_ne_bytes(), None, un).unwrap();
                b.c.poll().unwrap();
                while a.c.poll().unwrap().is_none() {}
                a.c.post_message_recv(None).unwrap();
            }
        }
        "msg4k" => {
            let mut out = [vec![], vec![]];
            let mut back = [None, None];
            for o in &mut out {
                for _ in 0..3 {
                    o.push(Region::anonymous(4096).unwrap());
                }
            }
            for b in &mut back {
                *b = Some(Region::anonymous(4096).unwrap());
            }
            a.c.post_message_recv(back[0].take()).unwrap();
            b.c.post_message_recv(back[1].take()).unwrap();
            let mut sides = [a, b];
            for _ in 0..n {
                for (from, to) in [(0, 1), (1, 0)] {
                    let r = out[from].pop().unwrap();
                    sides[from]
                        .c
                        .post_message(&[], Some(r.into()), Work::default())
                        .unwrap();
                    if let Some(done) = sides[from].c.poll().unwrap() {
                        out[from].push(done.into_region());
                    }
                    loop {
                        if let Some(done) = sides[to].c.poll().unwrap() {
                            if done.kind == request::WorkKind::Message {
                                out[to].push(done.into_region());
                            } else {
                                assert_eq!(done.result.as_ref().unwrap(), &4096);
                                sides[to]
                                    .c
                                    .post_message_recv(Some(done.into_region()))
                                    .unwrap();
                                break;
                            }
                        }
                    }
                }
            }
        }
        "rate" => {
            let mut i = 0;
            while i < n {
                for _ in 0..64 {
                    i += 1;
                    let work = if i % 64 == 0 { Work::default() } else { un };
                    a.c.post_put_inline(a.peer.as_ref().unwrap(), 0, &[i as u8; 64], work)
                        .unwrap();
                }
                a.c.poll().unwrap();
                b.c.poll().unwrap();
                b.c.poll().unwrap();
                while a.c.poll().unwrap().is_none() {
                    b.c.poll().unwrap();
                }
            }
        }
        _ => panic!(),
    }
}

fn raw(n: u64) {
    use std::net::UdpSocket;
    let a = UdpSocket::bind("127.0.0.1:0").unwrap();
    let b = UdpSocket::bind("127.0.0.1:0").unwrap();
    a.connect(b.local_addr().unwrap()).unwrap();
    b.connect(a.local_addr().unwrap()).unwrap();
    a.set_nonblocking(true).unwrap();
    b.set_nonblocking(true).unwrap();
    let mut buf = [0; 8];
    for _ in 0..n {
        a.send(&buf).unwrap();
        b.recv(&mut buf).unwrap();
        b.send(&buf).unwrap();
        a.recv(&mut buf).unwrap();
    }
}

fn rawempty(n: u64) {
    use std::net::UdpSocket;
    let a = UdpSocket::bind("127.0.0.1:0").unwrap();
    a.connect("127.0.0.1:1").unwrap();
    a.set_nonblocking(true).unwrap();
    let mut buf = [0; 8];
    for _ in 0..n {
        let _ = a.recv(&mut buf);
    }
}

fn main() {
    let mode = std::env::args().nth(1).unwrap();
    let n: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    let reps: u64 = std::env::args().nth(3).map_or(1, |x| x.parse().unwrap());
    let mut times = vec![];
    if mode == "raw" || mode == "rawempty" {
        for _ in 0..reps {
            let at = Instant::now();
            if mode == "raw" {
                raw(n)
            } else {
                rawempty(n)
            }
            times.push(at.elapsed().as_nanos() as u64 / n);
        }
    } else {
        let mut options = Options::default();
        if std::env::var("SEALED").is_err() {
            options.security = zerolane::Security::plain();
        }
        let (a, b) = pair(&options);
        let mut sides = [a, b].map(|c| Side {
            c,
            mem: ExportedRegion::new(Region::anonymous(4096).unwrap())
                .ok()
                .unwrap(),
            peer: None,
        });
        let k = [0, 1].map(|i| {
            let Side { c, mem, .. } = &mut sides[i];
            c.export(mem, Rights::ALL).unwrap()
        });
        let [k0, k1] = k;
        sides[0].peer = Some(k1);
        sides[1].peer = Some(k0);
        let [mut a, mut b] = sides;
        for _ in 0..1000 {
            a.c.poll().unwrap();
            b.c.poll().unwrap();
        }
        for _ in 0..reps {
            let at = Instant::now();
            measured(&mode, n, &mut a, &mut b);
            times.push(at.elapsed().as_nanos() as u64 / n);
            a.c.poll().unwrap();
            b.c.poll().unwrap();
        }
        if std::env::args().nth(4).is_some() {
            eprintln!("{:#?}", a.c.account());
        }
    }
    times.sort();
    println!(
        "{mode}: {} ns/op (min {}, max {})",
        times[times.len() / 2],
        times[0],
        times[times.len() - 1]
    );
    std::process::exit(0);
}
