//! Defines the settings of a device.

/// How a [device](crate::ethernet::EthernetDevice) is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// The receive queue of the interface whose frames come by AF_XDP. Frames in other queues come by packet sockets.
    /// Most interfaces put all frames without IP in queue 0. `None`: all come by packet sockets, validated.
    pub queue: Option<u32>,
    /// Most connections that have a place in its memory at a time, 1 to 1024, and whose payload is checked against
    /// their grants. Each takes 8 KiB of the kernel's memory. With a queue it also takes unswappable memory: 4.5 MiB at
    /// an MTU of 1500, 11 MiB at 9000.
    pub max_connections: u32,
    /// Drop frames of the Scheduled Transfer that belong to no connection of this device. Otherwise they continue to
    /// connections without this device, or of other programs.
    pub exclusive: bool,
    /// Use AF_XDP only if the driver itself reads and writes the memory; otherwise it is
    /// [refused](crate::unavailable::NoEthernet::Copies). If the kernel copies each frame once more, bulk payload is slower than by
    /// packet sockets, and short operations are faster.
    pub zero_copy: bool,
    /// Continue by packet sockets, as without a device, if AF_XDP or the program is refused, or all places are taken.
    /// Otherwise that is an error.
    pub fall_back: bool,
    /// Poll the driver from the thread that polls for arrivals, for at most this many frames a call
    /// (SO_PREFER_BUSY_POLL): for interfaces whose interrupts are slower. Costs a system call each time that nothing is
    /// there.
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
