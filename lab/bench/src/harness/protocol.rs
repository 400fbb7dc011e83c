//! Defines the messages between the orchestrator and an end, one JSON line each.
//!
//! ```text
//! orchestrator            responder                initiator
//!   Respond ------------>  listens
//!           <-- Listening
//!   Initiate ------------------------------------->  connects, does the job
//!           <----------------------------------------- Done
//!           <------- Done  after checking every byte
//! ```
//!
//! An end may serve another machine, so every job is checked before anything is done for it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::machine::Machine;
use crate::job::Job;
use crate::measured::Measured;

/// Changes with every incompatible change of these types.
pub(crate) const VERSION: u32 = 17;

/// To an end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Request {
    /// Say who you are.
    Hello { version: u32 },
    /// Measure this core's memcpy on buffers of so many bytes.
    Memcpy { buffer: usize },
    /// Wait for the initiators of this job, then do the responder's part.
    Respond(Job),
    /// Connect to the responder of this job, then do the initiator's part.
    Initiate { to: SocketAddr, job: Job },
}

/// From an end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "did", rename_all = "snake_case")]
pub(crate) enum Reply {
    Hello {
        version: u32,
        machine: Machine,
    },
    Memcpy {
        gbps: f64,
    },
    /// The port to which the initiators of the job connect; over raw Ethernet, the hardware address too.
    Listening {
        port: u16,
        hardware: Option<[u8; 6]>,
    },
    /// What came in a part of a flow's time, while it goes on; see `Flows::live`.
    Sample {
        flow: usize,
        bytes: u64,
    },
    /// The job is done: what was measured, connection by connection.
    Done {
        measured: Vec<Measured>,
    },
    /// The request failed; the end takes no further ones.
    Failed {
        message: String,
        failure: Failure,
    },
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::job::tests::every_work;

    #[test]
    fn Request__survives_its_json() {
        let to = "[::1]:9".parse().unwrap();
        let jobs = every_work().into_iter();
        let requests = jobs.flat_map(|job| {
            let respond = Request::Respond(job.clone());
            [respond, Request::Initiate { to, job }]
        });
        let others = [
            Request::Hello { version: VERSION },
            Request::Memcpy { buffer: 4096 },
        ];
        for request in requests.chain(others) {
            let json = serde_json::to_string(&request).unwrap();
            let read: Request = serde_json::from_str(&json).unwrap();
            assert_eq!(read, request, "{json}");
        }
    }
}
