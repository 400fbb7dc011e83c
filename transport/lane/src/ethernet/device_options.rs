//! What a user may choose about a device.

/// How a [device](super::EthernetDevice) is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// The receive queue of the interface whose frames come by AF_XDP. What the interface puts in another one comes by packet
    /// sockets. Most interfaces have all frames without IP in queue 0. `None`: all come by packet sockets, validated.
    pub queue: Option<u32>,
    /// Connections that may have a place in its memory at a time, 1 to 1024, and whose payload is judged by what they granted. Each takes 8
    /// KiB of the kernel's memory; and with a queue 4.5 MiB that are not swapped at an MTU of 1500, 11 MiB at 9000.
    pub max_connections: u32,
    /// Frames of the Scheduled Transfer that are for nobody who has this device are dropped. Else they go on: to
    /// connections without this device, or of other programs.
    pub exclusive: bool,
    /// Have AF_XDP only where the driver itself reads and writes the memory, and it is
    /// [refused](crate::NoEthernet::Copies) elsewhere: where the kernel copies each frame once more, much payload is
    /// slower than by packet sockets, and short operations are faster.
    pub zero_copy: bool,
    /// Go on by packet sockets, as without a device, where AF_XDP or the program is refused, or all places are taken. Else that is an
    /// error.
    pub fall_back: bool,
    /// Poll the driver from the thread that looks for what came, for at most so many frames a call
    /// (SO_PREFER_BUSY_POLL): for interfaces whose interrupts are slower than that. Costs a system call each time that nothing is there.
    pub busy_poll: Option<u16>,
}

impl Default for DeviceOptions {
    fn default() -> DeviceOptions {
        DeviceOptions {
            queue: Some(0),
            max_connections: 8,
            exclusive: false,
            zero_copy: false,
            fall_back: false,
            busy_poll: None,
        }
    }
}
