//! Executes PERSISTENT RESERVE IN.

use super::Reservations;
use crate::cdb::ReserveIn;
use crate::initiator::Initiator;

/// The relative identifier of the only target port.
const PORT: u16 = 1;

impl Reservations {
    /// The parameter data of that service action.
    pub(crate) fn report(&self, action: ReserveIn) -> Vec<u8> {
        match action {
            ReserveIn::Keys => self.with_head(self.keys.values().flat_map(|it| it.to_be_bytes())),
            ReserveIn::Reservation => self.with_head(self.reservation().into_iter()),
            ReserveIn::Capabilities => capabilities(),
            ReserveIn::FullStatus => {
                self.with_head(self.keys.iter().flat_map(|(it, &key)| self.status(it, key)))
            }
        }
    }

    /// The generation, and the length of what follows.
    fn with_head(&self, content: impl Iterator<Item = u8>) -> Vec<u8> {
        let content: Vec<u8> = content.collect();
        let mut bytes = self.generation.to_be_bytes().to_vec();
        bytes.extend((content.len() as u32).to_be_bytes());
        bytes.extend(content);
        bytes
    }

    fn reservation(&self) -> Vec<u8> {
        let Some(held) = &self.held else {
            return Vec::new();
        };
        let key = self.keys.get(&held.by).filter(|_| !held.kind.is_of_all());
        let mut bytes = key.copied().unwrap_or(0).to_be_bytes().to_vec();
        bytes.extend([0, 0, 0, 0, 0, held.kind as u8, 0, 0]);
        bytes
    }

    fn status(&self, initiator: &Initiator, key: u64) -> Vec<u8> {
        let id = initiator.transport_id();
        let holds = self.holds(initiator);
        let kind = self.held.as_ref().filter(|_| holds);
        let mut bytes = key.to_be_bytes().to_vec();
        bytes.extend([0; 4]);
        bytes.extend([u8::from(holds), kind.map_or(0, |it| it.kind as u8)]);
        bytes.extend([0; 4]);
        bytes.extend(PORT.to_be_bytes());
        bytes.extend((id.len() as u32).to_be_bytes());
        bytes.extend(id);
        bytes
    }
}

/// All six types; one target port, no persistence through power loss, no registering of others.
fn capabilities() -> Vec<u8> {
    const TYPES_VALID: u8 = 0x80;
    vec![0, 8, 0, TYPES_VALID, 0xea, 0x01, 0, 0]
}
