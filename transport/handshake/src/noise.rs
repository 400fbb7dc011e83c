//! Wraps the Noise state of either end, with randomness from the caller.

use crate::{Credentials, PreShared};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, Error, HandshakeState};
use zeroize::Zeroizing;
use zerolane_wire::handshake::{HandshakeMessage, Proof};

/// XX: neither end needs to know the other's key in advance, and the Initiator reveals its own only to an accepted
/// Responder.
const XX: &str = "Noise_XX_25519_ChaChaPoly_BLAKE2s";
const XX_PSK: &str = "Noise_XXpsk3_25519_ChaChaPoly_BLAKE2s";
/// Where XXpsk3 mixes in the key.
const PSK_PLACE: u8 = 3;

/// Returns the ephemeral key that the caller supplied.
struct Given(Zeroizing<[u8; 32]>);

/// Returns the bytes once. A second draw would repeat an ephemeral key, so it fails.
struct Once(Option<Zeroizing<[u8; 32]>>);

impl Random for Once {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        match self.0.take() {
            Some(bytes) if bytes.len() == dest.len() => {
                dest.copy_from_slice(&bytes[..]);
                Ok(())
            }
            _ => Err(Error::Rng),
        }
    }
}

impl CryptoResolver for Given {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(self.0.clone()))))
    }
    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }
    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }
    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// Which end of the exchange.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Initiator,
    Responder,
}

/// The state of one exchange. `hello` is its first message. The prologue binds its header to all that follows.
pub(crate) fn begin(
    role: Role,
    credentials: &Credentials,
    hello: &HandshakeMessage<'_>,
    ephemeral: [u8; 32],
) -> Result<HandshakeState, Error> {
    let name = match hello.proof {
        Proof::None => XX,
        Proof::PreSharedKey | Proof::Code => XX_PSK,
    };
    let prologue = prologue(hello);
    let random = Given(Zeroizing::new(ephemeral));
    let mut builder = Builder::with_resolver(name.parse()?, Box::new(random))
        .prologue(&prologue)?
        .local_private_key(credentials.identity.secret())?;
    if let (Proof::PreSharedKey, Some(PreShared::Key(key))) = (hello.proof, &credentials.pre_shared)
    {
        builder = builder.psk(PSK_PLACE, key)?;
    }
    match role {
        Role::Initiator => builder.build_initiator(),
        Role::Responder => builder.build_responder(),
    }
}

/// Mixes in the key of a code, before the third message.
pub(crate) fn set_key(state: &mut HandshakeState, key: &[u8; 32]) -> Result<(), Error> {
    state.set_psk(usize::from(PSK_PLACE), key)
}

fn prologue(hello: &HandshakeMessage<'_>) -> Vec<u8> {
    let mut bytes = b"Zerolane handshake 1".to_vec();
    bytes.extend(hello.s_port.to_be_bytes());
    bytes.extend(hello.d_port.to_be_bytes());
    bytes.extend(hello.s_key.to_be_bytes());
    bytes.extend(hello.sync.to_be_bytes());
    if hello.proof == Proof::Code {
        bytes.extend(b"code");
    }
    bytes
}

/// The secrets of both directions, the Initiator's first.
pub(crate) fn split(state: &mut HandshakeState) -> [Zeroizing<[u8; 32]>; 2] {
    let (first, second) = state.dangerously_get_raw_split();
    [Zeroizing::new(first), Zeroizing::new(second)]
}
