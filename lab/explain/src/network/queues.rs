//! Reads the drops of queueing disciplines, by rtnetlink.

use std::collections::HashMap;
use std::fs::File;
use std::io;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::sched::{CloneFlags, setns};

use super::tally::{Counter, Readings};

/// Datagrams of an answer. A machine with more interfaces than fit is read in part.
const ANSWER_LIMIT: usize = 4096;

/// Asks one namespace's kernel.
pub(super) struct Queues {
    socket: Socket,
    /// By index.
    interfaces: HashMap<i32, String>,
}

impl Queues {
    /// Of the calling thread's namespace.
    pub(super) fn here() -> io::Result<Queues> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Queues {
            socket,
            interfaces: HashMap::new(),
        })
    }

    /// Of the namespace that `file` stands for. A socket stays in the namespace that it was made in, so it is
    /// made by a thread that goes there and ends.
    pub(super) fn there(file: &File) -> io::Result<Queues> {
        let made = std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                setns(file, CloneFlags::CLONE_NEWNET)?;
                Queues::here()
            });
            there.join()
        });
        made.unwrap_or_else(|_| Err(io::Error::other("the thread failed")))
    }

    /// The drops of the discipline at each interface's root, which has those of its classes in its count, and
    /// of what is before reception.
    pub(super) fn read(&mut self) -> io::Result<Readings> {
        let asked = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let mut readings = Readings::new();
        for answer in self.dump(asked)? {
            let RouteNetlinkMessage::NewQueueDiscipline(queue) = answer else {
                continue;
            };
            if ![TcHandle::ROOT, TcHandle::INGRESS].contains(&queue.header.parent) {
                continue;
            }
            let (kind, drops) = kind_and_drops(&queue.attributes);
            let interface = self.interface(queue.header.index)?;
            *readings.entry(Counter::Queue(interface, kind)).or_default() += drops;
        }
        Ok(readings)
    }

    fn interface(&mut self, index: i32) -> io::Result<String> {
        if !self.interfaces.contains_key(&index) {
            self.read_interfaces()?;
        }
        let known = self.interfaces.get(&index).cloned();
        Ok(known.unwrap_or_else(|| format!("interface {index}")))
    }

    fn read_interfaces(&mut self) -> io::Result<()> {
        for answer in self.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))? {
            let RouteNetlinkMessage::NewLink(link) = answer else {
                continue;
            };
            let name = link.attributes.iter().find_map(|it| match it {
                LinkAttribute::IfName(name) => Some(name.clone()),
                _ => None,
            });
            self.interfaces
                .extend(name.map(|it| (link.header.index as i32, it)));
        }
        Ok(())
    }

    fn dump(&self, asked: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut request =
            NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(asked));
        request.header.flags = NLM_F_DUMP | NLM_F_REQUEST;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answers = Vec::new();
        for _ in 0..ANSWER_LIMIT {
            let (datagram, _) = self.socket.recv_from_full()?;
            if take(&datagram, &mut answers)? {
                break;
            }
        }
        Ok(answers)
    }
}

/// The messages of a datagram; whether they are the last.
fn take(datagram: &[u8], answers: &mut Vec<RouteNetlinkMessage>) -> io::Result<bool> {
    let mut rest = datagram;
    while !rest.is_empty() {
        let message =
            NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(io::Error::other)?;
        match message.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::InnerMessage(answer) => answers.push(answer),
            _ => {}
        }
        // Messages begin at multiples of 4 bytes.
        let len = (message.header.length as usize).next_multiple_of(4);
        rest = rest.get(len.max(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn kind_and_drops(attributes: &[TcAttribute]) -> (String, u64) {
    let (mut kind, mut drops) = (String::new(), 0);
    for attribute in attributes {
        match attribute {
            TcAttribute::Kind(it) => kind.clone_from(it),
            TcAttribute::Stats2(stats) => {
                let of_queue = stats.iter().find_map(|it| match it {
                    TcStats2::Queue(queue) => Some(queue.drops),
                    _ => None,
                });
                drops = of_queue.unwrap_or(0).into();
            }
            _ => {}
        }
    }
    (kind, drops)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn read__names_interfaces_that_exist() {
        let read = Queues::here().unwrap().read().unwrap();
        for counter in read.keys() {
            let Counter::Queue(interface, kind) = counter else {
                panic!("{counter:?}");
            };
            assert!(!kind.is_empty());
            assert!(
                std::path::Path::new("/sys/class/net")
                    .join(interface)
                    .exists(),
                "{interface}"
            );
        }
    }
}
