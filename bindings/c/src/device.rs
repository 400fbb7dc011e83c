//! Opens interfaces for raw Ethernet past the network stack.

use crate::address;
use crate::options::{change, zl_options};
use crate::pointer::{Output, free, give, handle, text};
use crate::status::{Failure, guard, zl_status};
use std::ffi::c_char;
use std::sync::Arc;
use zerolane::options::{DeviceOptions, EthernetDevice};

/// An interface opened for raw Ethernet past the kernel's network stack (AF_XDP): once for each
/// interface, for all its connections. docs/reference/lanes.md, "AF_XDP".
pub struct zl_device(Arc<EthernetDevice>);

/// Settings of a device. All 0: the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zl_device_options {
    /// Values of enum zl_device_flag, joined by |.
    pub flags: u32,
    /// The receive queue whose frames come by AF_XDP.
    pub queue: u32,
    /// Most connections at a time, 1 to 1024; 0: 8.
    pub max_connections: u32,
    /// Poll the driver for at most this many frames a call (SO_PREFER_BUSY_POLL), up to 65535;
    /// 0: do not.
    pub busy_poll: u32,
    /// Must be 0.
    pub reserved: [u64; 4],
}

/// Flags of zl_device_options.
#[repr(u32)]
#[derive(Clone, Copy)]
pub enum zl_device_flag {
    /// Refuse AF_XDP unless the driver itself reads and writes the memory.
    ZL_DEVICE_ZERO_COPY = 1,
    /// Use packet sockets if AF_XDP or the program is refused; zl_device_refused returns the
    /// reason. Without this flag that is an error.
    ZL_DEVICE_FALL_BACK = 2,
    /// Drop frames of the protocol that belong to no connection of the device.
    ZL_DEVICE_EXCLUSIVE = 4,
    /// Frames come by packet sockets, and the driver drops payload that was not granted.
    ZL_DEVICE_VALIDATE_ONLY = 8,
}

use zl_device_flag::*;

/// How a device's frames come and leave.
#[repr(u32)]
#[derive(Clone, Copy)]
pub enum zl_device_mode {
    /// By packet sockets.
    ZL_DEVICE_PACKET_SOCKETS = 0,
    /// By AF_XDP; the kernel copies each frame once more.
    ZL_DEVICE_BYPASS_COPY = 1,
    /// By AF_XDP; the driver reads and writes the memory itself.
    ZL_DEVICE_BYPASS_ZERO_COPY = 2,
}

use zl_device_mode::*;

impl zl_device_options {
    fn read(&self) -> Result<DeviceOptions, Failure> {
        const ZERO_COPY: u32 = ZL_DEVICE_ZERO_COPY as u32;
        const FALL_BACK: u32 = ZL_DEVICE_FALL_BACK as u32;
        const EXCLUSIVE: u32 = ZL_DEVICE_EXCLUSIVE as u32;
        const VALIDATE_ONLY: u32 = ZL_DEVICE_VALIDATE_ONLY as u32;
        let unknown = self.flags & !(ZERO_COPY | FALL_BACK | EXCLUSIVE | VALIDATE_ONLY);
        if unknown != 0 {
            return Err(Failure::argument(format!(
                "unknown device flag {unknown:#x}"
            )));
        }
        if self.reserved != [0; 4] {
            return Err(Failure::argument("reserved must be 0"));
        }
        if self.max_connections > 1024 {
            return Err(Failure::argument("max_connections is at most 1024"));
        }
        let busy_poll = u16::try_from(self.busy_poll)
            .map_err(|_| Failure::argument("busy_poll is at most 65535 frames"))?;
        let default = DeviceOptions::default();
        let has = |flag| self.flags & flag != 0;
        Ok(DeviceOptions {
            queue: (!has(VALIDATE_ONLY)).then_some(self.queue),
            max_connections: match self.max_connections {
                0 => default.max_connections,
                some => some,
            },
            exclusive: has(EXCLUSIVE),
            zero_copy: has(ZERO_COPY),
            fall_back: has(FALL_BACK),
            busy_poll: Some(busy_poll).filter(|&it| it != 0),
        })
    }
}

/// Opens `interface` with `options`, or the defaults if null. Needs root, or CAP_BPF,
/// CAP_NET_ADMIN, CAP_PERFMON and CAP_NET_RAW. Give the device to connections and endpoints
/// with zl_options_set_device, and free it with zl_device_free.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_device_open(
    interface: *const c_char,
    options: *const zl_device_options,
    device: *mut *mut zl_device,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about texts and outputs.
        let (interface, output) = unsafe {
            (
                text(interface, "interface")?,
                Output::new(device, "device")?,
            )
        };
        let options = match options.is_null() {
            true => DeviceOptions::default(),
            // SAFETY: C's promise about pointers.
            false => unsafe { options.read() }.read()?,
        };
        let opened = EthernetDevice::open(interface, options).map_err(zerolane::Error::from)?;
        output.set(give(zl_device(opened)));
        Ok(zl_status::ZL_OK)
    })
}

/// Uses `device` for connections and endpoints over ZL_LANE_ETHERNET that are made with
/// `options` from now on; null: none.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_options_set_device(
    options: *mut zl_options,
    device: *const zl_device,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let options = unsafe { handle(options, "options") }?;
        let device = match device.is_null() {
            true => None,
            // SAFETY: C's promise about handles.
            false => Some(unsafe { handle(device, "device") }?.0.clone()),
        };
        change(options, |settings| {
            settings.options.lane.device = device;
            Ok(())
        })
    })
}

/// Writes to `mode` how frames come and leave, a value of enum zl_device_mode.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_device_get_mode(device: *const zl_device, mode: *mut u32) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (device, output) = unsafe { (handle(device, "device")?, Output::new(mode, "mode")?) };
        let device = &device.0;
        output.set(match (device.has_bypass(), device.is_zero_copy()) {
            (false, _) => ZL_DEVICE_PACKET_SOCKETS,
            (true, false) => ZL_DEVICE_BYPASS_COPY,
            (true, true) => ZL_DEVICE_BYPASS_ZERO_COPY,
        } as u32);
        Ok(zl_status::ZL_OK)
    })
}

/// Writes to `buffer`, with a terminating zero, why AF_XDP or the program in the driver is not
/// used although requested; an empty text if it is used. 512 bytes are enough.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_device_refused(
    device: *const zl_device,
    buffer: *mut c_char,
    capacity: usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let device = unsafe { handle(device, "device") }?;
        let why = device.0.refused().map(ToString::to_string);
        // SAFETY: C's promise about memory.
        unsafe { address::write(why.unwrap_or_default(), buffer, capacity) }?;
        Ok(zl_status::ZL_OK)
    })
}

/// Frees the handle. Null does nothing. The device stays open while connections, endpoints or
/// options use it.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_device_free(device: *mut zl_device) {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { free(device) };
        Ok(zl_status::ZL_OK)
    });
}
