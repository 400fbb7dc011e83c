//! Runs the login phase (RFC 7143, 6 and 13): stages, names, and negotiation of keys.

mod keys;

pub use keys::Settings;

use crate::limits::{MAX_LOGIN_PDUS, MAX_NAME_BYTES, MAX_TEXT_BYTES};
use crate::pdu::{AnswerBody, RequestBody};
use crate::text;
use keys::Reply;

/// Stages, as the PDUs number them.
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL: u8 = 3;

/// Status class and detail.
const SUCCESS: u16 = 0;
const INITIATOR_ERROR: u16 = 0x0200;
const AUTHENTICATION_FAILED: u16 = 0x0201;
const NOT_FOUND: u16 = 0x0203;
const WRONG_VERSION: u16 = 0x0205;
const TOO_MANY_CONNECTIONS: u16 = 0x0206;
const MISSING_PARAMETER: u16 = 0x0207;
const NO_SUCH_SESSION: u16 = 0x020a;

/// The only portal group.
pub const PORTAL_GROUP: u16 = 1;

/// The result of a login: the initiator and its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entrant {
    /// Its name.
    pub name: String,
    /// Its session identifier. With the name, it identifies the initiator port.
    pub isid: [u8; 6],
    /// Whether this is a discovery session.
    pub discovery: bool,
    /// Its identifier of the connection.
    pub connection: u16,
    /// The negotiated settings.
    pub settings: Settings,
}

/// The response to a login PDU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The answer to send.
    pub answer: AnswerBody,
    /// The text to send with it.
    pub text: Vec<u8>,
    /// The next state.
    pub next: Next,
}

/// The state after a login PDU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another one.
    Login,
    /// The session begins.
    Full(Entrant),
    /// The connection ends.
    Over,
}

/// A login in progress.
#[derive(Debug, Default)]
pub struct Login {
    /// The first PDU came, from this port, and is answered.
    started: Option<([u8; 6], u16)>,
    stage: u8,
    pdus: u32,
    text: Vec<u8>,
    name: Option<String>,
    target: Option<String>,
    discovery: bool,
    told_group: bool,
    settings: Settings,
}

impl Login {
    /// Handles a login PDU with `data`. `target` is the name of the only target, and `tsih` the handle for a new
    /// session.
    pub fn take(&mut self, body: &RequestBody, data: &[u8], target: &str, tsih: u16) -> Outcome {
        let &RequestBody::Login {
            transit,
            continued,
            current,
            next,
            version_min,
            isid,
            tsih: known,
            connection,
            ..
        } = body
        else {
            return failed([0; 6], 0, INITIATOR_ERROR);
        };
        let fail = |status| failed(isid, current, status);
        let port = (isid, connection);
        self.pdus += 1;
        let is_known = self.started.is_none_or(|it| it == port);
        if !is_known || self.pdus > MAX_LOGIN_PDUS || continued && transit {
            return fail(INITIATOR_ERROR);
        }
        if version_min > 0 {
            return fail(WRONG_VERSION);
        }
        match known {
            0 => {}
            // One connection a session.
            _ if self.started.is_none() => return fail(NO_SUCH_SESSION),
            _ => return fail(TOO_MANY_CONNECTIONS),
        }
        let is_first = self.started.replace(port).is_none();
        let is_stage = matches!(current, SECURITY | OPERATIONAL);
        if !is_stage || (!is_first && current != self.stage) {
            return fail(INITIATOR_ERROR);
        }
        self.stage = current;
        if transit && (next <= current || next == 2) {
            return fail(INITIATOR_ERROR);
        }
        if self.text.len() + data.len() > MAX_TEXT_BYTES {
            return fail(INITIATOR_ERROR);
        }
        self.text.extend(data);
        let answer = |transit, tsih| AnswerBody::Login {
            transit,
            continued: false,
            current,
            next,
            isid,
            tsih,
            status: SUCCESS,
        };
        if continued {
            return Outcome {
                answer: answer(false, 0),
                text: Vec::new(),
                next: Next::Login,
            };
        }
        let given = std::mem::take(&mut self.text);
        let mut said = match self.negotiate(&given) {
            Ok(said) => said,
            Err(status) => return fail(status),
        };
        if let Err(status) = self.check_names(target) {
            return fail(status);
        }
        if !self.discovery && !std::mem::replace(&mut self.told_group, true) {
            text::put(&mut said, "TargetPortalGroupTag", &PORTAL_GROUP.to_string());
        }
        if !transit || next != FULL {
            self.stage = if transit { next } else { current };
            return Outcome {
                answer: answer(transit, 0),
                text: said,
                next: Next::Login,
            };
        }
        self.settings.declare(&mut said);
        let entrant = Entrant {
            name: self.name.clone().unwrap_or_default(),
            isid,
            discovery: self.discovery,
            connection,
            settings: self.settings,
        };
        Outcome {
            answer: answer(true, tsih),
            text: said,
            next: Next::Full(entrant),
        }
    }

    /// Handles the keys in `given`, and returns the answers.
    fn negotiate(&mut self, given: &[u8]) -> Result<Vec<u8>, u16> {
        let pairs = text::pairs(given).map_err(|_| INITIATOR_ERROR)?;
        let mut said = Vec::new();
        for (key, value) in pairs {
            match key {
                "InitiatorName" => self.name = Some(name(value)?),
                "TargetName" => self.target = Some(name(value)?),
                "InitiatorAlias" => {}
                "SessionType" => {
                    self.discovery = match value {
                        "Discovery" => true,
                        "Normal" => false,
                        _ => return Err(INITIATOR_ERROR),
                    }
                }
                "AuthMethod" => {
                    if !value.split(',').any(|it| it == "None") {
                        return Err(AUTHENTICATION_FAILED);
                    }
                    text::put(&mut said, key, "None");
                }
                _ => match self.settings.negotiate(key, value, self.discovery) {
                    Reply::Nothing => {}
                    Reply::Value(value) => text::put(&mut said, key, &value),
                    Reply::Wrong => return Err(INITIATOR_ERROR),
                },
            }
        }
        Ok(said)
    }

    /// The first PDU has to name the initiator, and the target unless it is only asked which there are.
    fn check_names(&self, target: &str) -> Result<(), u16> {
        if self.name.is_none() {
            return Err(MISSING_PARAMETER);
        }
        match &self.target {
            _ if self.discovery => Ok(()),
            None => Err(MISSING_PARAMETER),
            Some(it) if it == target => Ok(()),
            Some(_) => Err(NOT_FOUND),
        }
    }
}

fn name(value: &str) -> Result<String, u16> {
    let is_name = (1..=MAX_NAME_BYTES).contains(&value.len());
    is_name.then(|| value.to_owned()).ok_or(INITIATOR_ERROR)
}

fn failed(isid: [u8; 6], current: u8, status: u16) -> Outcome {
    Outcome {
        answer: AnswerBody::Login {
            transit: false,
            continued: false,
            current,
            next: 0,
            isid,
            tsih: 0,
            status,
        },
        text: Vec::new(),
        next: Next::Over,
    }
}
