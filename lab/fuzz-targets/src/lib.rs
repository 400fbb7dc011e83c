//! Gives hostile input to every parser and engine: the bodies of the fuzz targets. The first lines of a module say what
//! holds for any input; a target panics if it does not.
//!
//! `cargo test` runs each target on its seeds and on mutations of these (`tests/mutated.rs`); cargo-fuzz, for as long as you
//! like, from `fuzz/` at the top of the repository.

mod cast_engine;
mod cast_messages;
mod core_input;
mod file_listings;
mod file_messages;
mod file_receiver;
mod handshake;
mod iscsi_pdu;
mod key_files;
mod nbd_session;
mod one_time_code;
mod scsi_command;
mod sockets_calls;
mod stream_messages;
mod trace;
mod tunnel_packet;
mod wire_datagram;
mod wire_frames;
mod wire_packet;
mod wire_train;

/// Applies macro `$apply` to the names of all targets.
#[macro_export]
macro_rules! with_targets {
    ($apply:ident) => {
        $apply! {
            cast_engine
            cast_messages
            core_input
            file_listings
            file_messages
            file_receiver
            handshake
            iscsi_pdu
            key_files
            nbd_session
            one_time_code
            scsi_command
            sockets_calls
            stream_messages
            trace
            tunnel_packet
            wire_datagram
            wire_frames
            wire_packet
            wire_train
        }
    };
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(pub use $name::run as $name;)*

        /// Every target, with the name of its directory in `fuzz/seeds`.
        pub const TARGETS: &[(&str, fn(&[u8]))] = &[$((stringify!($name), $name)),*];
    };
}

with_targets!(targets);
