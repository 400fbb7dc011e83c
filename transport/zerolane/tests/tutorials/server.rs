use zerolane::request::WorkKind;
use zerolane::worker::{Event, Worker};
use zerolane::{Options, Region};

fn main() -> zerolane::Result<()> {
    let mut worker = Worker::new()?;
    worker.listen("0.0.0.0:9183", Options::default())?;
    loop {
        worker.wait(None)?;
        while let Some(event) = worker.next_event() {
            let (client, question) = match event {
                Event::Accepted { connection, .. } => (connection, None),
                Event::Completed { connection, completion }
                    if completion.kind() == WorkKind::Receive => (connection, Some(completion)),
                _ => continue,
            };
            let Some(client) = worker.connection(client) else { continue }; // it has left
            if let Some(question) = question && let Ok(length) = question.result {
                let mut answer = question.into_region()?;
                drop(answer.split_off(length)); // what it left free
                let _ = client.post_send(answer);
            }
            let _ = client.post_recv(Region::anonymous(4096)?);
        }
    }
}
