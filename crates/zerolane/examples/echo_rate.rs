//! Requests a second: `echo_rate serve|tcp-serve ADDRESS` on one core, `echo_rate ask|tcp-ask ADDRESS CONNECTIONS SECONDS`
//! on another.
use rustix::event::epoll;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use zerolane::request::WorkKind;
use zerolane::worker::{Event, Worker};
use zerolane::{Options, Work};

const BYTES: usize = 64;

fn options() -> Options {
    let mut o = Options {
        connect_timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(60),
        receive_buffer: 1 << 20,
        ..Options::default()
    };
    if std::env::var("PLAIN").is_ok() {
        o.security = zerolane::Security::plain();
    }
    o
}

fn serve(on: SocketAddr) -> zerolane::Result<()> {
    let mut worker = Worker::new()?;
    let mut o = options();
    o.max_connections = 4000;
    o.max_connections_of_origin = 4000;
    worker.listen(on, o)?;
    loop {
        worker.wait(None)?;
        while let Some(event) = worker.next_event() {
            match event {
                Event::Accepted { connection, .. } => {
                    let connection = worker.connection(connection).unwrap();
                    for _ in 0..2 {
                        connection.post_message_recv(None)?;
                    }
                }
                Event::Completed {
                    connection,
                    completion,
                } if completion.kind == WorkKind::MessageReceived && completion.result.is_ok() => {
                    let Some(connection) = worker.connection(connection) else {
                        continue;
                    };
                    connection.post_message(
                        &completion.control,
                        None,
                        Work::default().unsignalled(),
                    )?;
                    connection.post_message_recv(None)?;
                }
                _ => {}
            }
        }
    }
}

fn ask(to: SocketAddr, connections: usize, seconds: u64) -> zerolane::Result<()> {
    let mut worker = Worker::new()?;
    let mut up = 0;
    let mut began = 0;
    while up < connections {
        while began < connections && began < up + 64 {
            worker.connect(to, &options())?;
            began += 1;
        }
        worker.wait(None)?;
        while let Some(event) = worker.next_event() {
            match event {
                Event::Connected { connection } => {
                    up += 1;
                    let connection = worker.connection(connection).unwrap();
                    connection.post_message_recv(None)?;
                }
                Event::Closed { reason, .. } => panic!("{reason}"),
                _ => {}
            }
        }
    }
    eprintln!("{up} up");
    if seconds == 0 {
        loop {
            worker.wait(None)?;
        }
    }
    let ids: Vec<_> = worker.connection_ids().collect();
    for id in ids {
        worker.connection(id).unwrap().post_message(
            &[7; BYTES],
            None,
            Work::default().unsignalled(),
        )?;
    }
    let mut done = 0u64;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(seconds) {
        worker.wait(Some(Duration::from_millis(10)))?;
        while let Some(event) = worker.next_event() {
            if let Event::Completed {
                connection,
                completion,
            } = event
                && completion.kind == WorkKind::MessageReceived
            {
                assert_eq!(completion.control[..], [7; BYTES]);
                done += 1;
                let connection = worker.connection(connection).unwrap();
                connection.post_message_recv(None)?;
                connection.post_message(&[7; BYTES], None, Work::default().unsignalled())?;
            }
        }
    }
    println!("{}", done as f64 / start.elapsed().as_secs_f64());
    let ids: Vec<_> = worker.connection_ids().collect();
    let mut sum = [0u64; 9];
    for id in ids {
        let a = worker.connection(id).unwrap().account();
        for (s, v) in sum.iter_mut().zip([
            a.rx_data_syscalls,
            a.rx_control_syscalls,
            a.rx_empty_polls,
            a.tx_data_syscalls * 1_000_000_000 + a.tx_control_syscalls,
            a.protocol.control_sent,
            a.protocol.control_received,
            a.protocol.timeouts,
            a.protocol.dropped_total(),
            a.dropped_on_send,
        ]) {
            *s += v;
        }
    }
    eprintln!(
        "done {done}: rxdata, rxctl, empty, tx, ctlsent, ctlrcv, timeouts, dropped, droppedsend {sum:?}"
    );
    Ok(())
}

fn tcp_loop(
    epoll: std::os::fd::OwnedFd,
    mut streams: Vec<Option<TcpStream>>,
    listener: Option<TcpListener>,
    end: Option<Instant>,
) -> u64 {
    use rustix::event::Timespec;
    let mut done = 0;
    let mut buffer = [0; BYTES];
    let t = Timespec {
        tv_sec: 0,
        tv_nsec: 10_000_000,
    };
    loop {
        if end.is_some_and(|end| Instant::now() >= end) {
            return done;
        }
        let mut room = [std::mem::MaybeUninit::<epoll::Event>::uninit(); 256];
        let (events, _) = epoll::wait(&epoll, &mut room[..], Some(&t)).unwrap();
        for event in events {
            let at = event.data.u64() as usize;
            if at == usize::MAX {
                while let Ok((stream, _)) = listener.as_ref().unwrap().accept() {
                    stream.set_nonblocking(true).unwrap();
                    stream.set_nodelay(true).unwrap();
                    epoll::add(
                        &epoll,
                        stream.as_fd(),
                        epoll::EventData::new_u64(streams.len() as u64),
                        epoll::EventFlags::IN,
                    )
                    .unwrap();
                    streams.push(Some(stream));
                }
                continue;
            }
            let Some(stream) = &mut streams[at] else {
                continue;
            };
            match stream.read(&mut buffer) {
                Ok(BYTES) => {
                    done += 1;
                    let _ = stream.write(&buffer);
                }
                Ok(0) | Err(_) => {
                    streams[at] = None;
                }
                Ok(n) => panic!("{n}"),
            }
        }
    }
}

fn main() -> zerolane::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let address: SocketAddr = args[2].parse().unwrap();
    match args[1].as_str() {
        "serve" => serve(address),
        "ask" => ask(address, args[3].parse().unwrap(), args[4].parse().unwrap()),
        "tcp-serve" => {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            epoll::add(
                &epoll,
                listener.as_fd(),
                epoll::EventData::new_u64(u64::MAX),
                epoll::EventFlags::IN,
            )
            .unwrap();
            tcp_loop(epoll, vec![], Some(listener), None);
            Ok(())
        }
        _ => {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
            let count: usize = args[3].parse().unwrap();
            let mut streams = vec![];
            for n in 0..count {
                let mut stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.write_all(&[7; BYTES])?;
                stream.set_nonblocking(true)?;
                epoll::add(
                    &epoll,
                    stream.as_fd(),
                    epoll::EventData::new_u64(n as u64),
                    epoll::EventFlags::IN,
                )
                .unwrap();
                streams.push(Some(stream));
            }
            let seconds: u64 = args[4].parse().unwrap();
            let start = Instant::now();
            let done = tcp_loop(
                epoll,
                streams,
                None,
                Some(start + Duration::from_secs(seconds)),
            );
            println!("{}", done as f64 / start.elapsed().as_secs_f64());
            Ok(())
        }
    }
}
