//! Loads or creates a key pair in a file that only its owner may read.

use super::file::{self, Secrecy};
use super::{Error, content};
use data_encoding::BASE64URL_NOPAD;
use std::path::Path;
use zeroize::Zeroizing;
use zerolane_lane::Identity;

/// Starts every secret key in text.
const PREFIX: &str = "zl-secret:";

/// The pair in the file; `None` if there is no file.
///
/// # Errors
/// Other users may read it, it is malformed, or the system refused.
pub fn load(path: &Path) -> Result<Option<Identity>, Error> {
    let Some(text) = file::read(path, Secrecy::Secret)?.map(Zeroizing::new) else {
        return Ok(None);
    };
    parse(&text).map(Some)
}

/// Creates a pair and saves it in the file.
///
/// # Errors
/// [`Error::Exists`] if the file exists: it is not overwritten. Or the system refused.
pub fn create(path: &Path) -> Result<Identity, Error> {
    let secret = zerolane_lane::random().map_err(Error::Random)?;
    let identity = Identity::from_secret(secret);
    let text = Zeroizing::new(format!(
        "# A secret key of Zerolane. Its public key is {}.\n{PREFIX}{}\n",
        identity.public(),
        BASE64URL_NOPAD.encode(identity.secret())
    ));
    file::write(path, &text, true)?;
    Ok(identity)
}

/// The pair in the file, created if there is no file.
///
/// # Errors
/// As for [`load`] and [`create`].
pub fn load_or_create(path: &Path) -> Result<Identity, Error> {
    if let Some(identity) = load(path)? {
        return Ok(identity);
    }
    match create(path) {
        // Another process was faster.
        Err(Error::Exists(path)) => match load(&path)? {
            Some(identity) => Ok(identity),
            None => Err(Error::Exists(path)),
        },
        created => created,
    }
}

/// Parses the text of a file with a pair.
///
/// # Errors
/// It is malformed. The error does not repeat the text.
pub fn parse(text: &str) -> Result<Identity, Error> {
    let mut lines = text.lines().map(content).zip(1..);
    let found = lines.find(|(line, _)| !line.is_empty());
    let (secret, line) = found.ok_or(Error::Syntax {
        line: 1,
        problem: "there is no key",
    })?;
    let syntax = |problem| Error::Syntax { line, problem };
    let encoded = secret
        .strip_prefix(PREFIX)
        .ok_or(syntax("not a secret key of Zerolane"))?;
    let decoded = BASE64URL_NOPAD
        .decode(encoded.as_bytes())
        .map(Zeroizing::new);
    let bytes = decoded.map_err(|_| syntax("the key is damaged"))?;
    let secret = <[u8; 32]>::try_from(&bytes[..]).map_err(|_| syntax("the key is damaged"))?;
    Ok(Identity::from_secret(secret))
}
