//! Connects an initiator to a target within one thread, without a network.

use crate::sense::Failure;
use crate::target::{NexusId, Refused, Request, Response, Step, Target};
use crate::work::{Payload, Work};

/// Executes one command from submission to response. Read data, payload or parameters, goes into `data_in`; written
/// data comes from `data_out`. The target must have no other command meanwhile.
///
/// # Errors
/// The nexus does not exist.
pub fn execute(
    target: &mut Target,
    nexus: NexusId,
    request: &Request<'_>,
    data_out: &[u8],
    data_in: &mut [u8],
) -> Result<Option<Response>, Refused> {
    let request = Request {
        data_in: data_in.len() as u64,
        data_out: data_out.len() as u64,
        ..*request
    };
    target.submit(nexus, &request)?;
    while let Some(step) = target.next_step() {
        match step {
            Step::Fetch { task, bytes, .. } => {
                target.fetched(task, data_out.get(..bytes).unwrap_or(data_out));
            }
            Step::Work { task, work, .. } => target.done(task, perform(&work, data_out, data_in)),
            Step::Respond {
                nexus: of,
                tag,
                response,
            } if (of, tag) == (nexus, request.tag) => {
                let room = response.data.len().min(data_in.len());
                data_in[..room].copy_from_slice(&response.data[..room]);
                return Ok(Some(response));
            }
            Step::Respond { .. } | Step::Managed { .. } => {}
        }
    }
    Ok(None)
}

/// Moves the payload, and does the rest.
fn perform(work: &Work, data_out: &[u8], data_in: &mut [u8]) -> Result<Vec<u8>, Failure> {
    match work.payload() {
        Payload::None => {}
        Payload::In(bytes) => {
            let room = data_in.len().min(bytes as usize);
            work.read(0, &mut data_in[..room])?;
        }
        Payload::Out(bytes) => {
            let given = data_out.len().min(bytes as usize);
            work.write(0, &data_out[..given])?;
        }
    }
    work.finish()
}
