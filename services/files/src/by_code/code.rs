//! Defines the code that two people read to each other: a public channel and a secret.

use std::fmt;
use std::str::FromStr;
use zerolane::security::Code;

/// Digits of the channel.
const CHANNEL_DIGITS: usize = 4;
const CHANNELS: u64 = 10_000;
/// Digits of the secret.
const SECRET_DIGITS: usize = 8;

/// The code of `send` and `receive`: twelve digits, `1234-5678-9012` in text.
///
/// The first four are the channel, which is broadcast in the open. The other eight are secret: nothing of them is sent,
/// not even a digest, against which guesses could be tested offline. They are the [`Code`] of the key exchange, which
/// allows one guess for each attempt.
#[derive(Clone, PartialEq, Eq)]
pub struct TransferCode {
    channel: u16,
    secret: Code,
}

impl TransferCode {
    /// A code from unpredictable bytes. The channel and the secret are drawn from different ones.
    pub(crate) fn from_random(channel: [u8; 32], secret: [u8; 32]) -> TransferCode {
        let [a, b, c, d, e, f, g, h, ..] = channel;
        let number = u64::from_le_bytes([a, b, c, d, e, f, g, h]) % CHANNELS;
        TransferCode {
            channel: number as u16,
            secret: Code::from_random(secret),
        }
    }

    /// The public part.
    pub(crate) fn channel(&self) -> u16 {
        self.channel
    }

    pub(crate) fn secret(&self) -> &Code {
        &self.secret
    }
}

impl fmt::Display for TransferCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{}", self.channel, self.secret)
    }
}

impl fmt::Debug for TransferCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransferCode")
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}

/// The text is not a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a code of `zerolane send`: expected twelve digits, such as 1234-5678-9012")]
pub struct TransferCodeError;

/// As people write it: dashes and spaces between the digits are ignored.
impl FromStr for TransferCode {
    type Err = TransferCodeError;
    fn from_str(text: &str) -> Result<TransferCode, TransferCodeError> {
        let digits: String = text.chars().filter(|it| !"- ".contains(*it)).collect();
        let right = digits.len() == CHANNEL_DIGITS + SECRET_DIGITS
            && digits.bytes().all(|it| it.is_ascii_digit());
        if !right {
            return Err(TransferCodeError);
        }
        let (channel, secret) = digits.split_at(CHANNEL_DIGITS);
        Ok(TransferCode {
            channel: channel.parse().map_err(|_| TransferCodeError)?,
            secret: secret.parse().map_err(|_| TransferCodeError)?,
        })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn TransferCode__is_read_as_it_is_shown() {
        for seed in 0..50 {
            let code = TransferCode::from_random([seed; 32], [seed + 1; 32]);
            assert_eq!(code.to_string().len(), 14);
            assert_eq!(code.to_string().parse(), Ok(code.clone()));
            let spoken = code.to_string().replace('-', " ");
            assert_eq!(spoken.parse(), Ok(code));
        }
        for wrong in [
            "",
            "1234-5678",
            "1234-5678-901",
            "1234-5678-90123",
            "1234-5678-901x",
            "١٢٣٤-5678-9012",
        ] {
            assert_eq!(
                wrong.parse::<TransferCode>(),
                Err(TransferCodeError),
                "{wrong}"
            );
        }
    }

    #[test]
    fn TransferCode__shows_no_secret_by_accident() {
        let code: TransferCode = "1234-5678-9012".parse().unwrap();
        assert_eq!(format!("{code:?}"), "TransferCode { channel: 1234, .. }");
    }
}
