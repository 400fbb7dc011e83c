//! Answers `fi_getinfo`: addresses of the host, or one that the program names, with the attributes of the provider.
//!
//! libfabric frees the answers with free(), so they are made with calloc. Each structure has room behind it: a newer
//! libfabric reads fields that the headers of this build do not have.

use crate::address::{self, Interface};
use crate::attributes::{self, Hints, Offer};
use crate::errno::{self, Errno, Outcome};
use crate::libfabric::*;
use crate::log::{self, Level};
use crate::object::place;
use crate::settings::Settings;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

/// Bytes of zeros behind each structure.
const SPARE: usize = 128;

/// A zeroed structure, which free() frees.
fn allocate<T>(value: T) -> Outcome<*mut T> {
    // SAFETY: calloc has no preconditions, and a block of at least the size of `T` holds one.
    unsafe {
        let block: *mut T = libc::calloc(1, size_of::<T>() + SPARE).cast();
        if block.is_null() {
            return Err(Errno::NO_MEMORY);
        }
        block.write(value);
        Ok(block)
    }
}

fn copy_text(text: &CStr) -> Outcome<*mut c_char> {
    // SAFETY: a text ends with a zero.
    match unsafe { libc::strdup(text.as_ptr()) } {
        copy if copy.is_null() => Err(Errno::NO_MEMORY),
        copy => Ok(copy),
    }
}

fn copy_bytes(bytes: &[u8]) -> Outcome<*mut c_void> {
    // SAFETY: as many bytes as were allocated.
    unsafe {
        let block: *mut u8 = libc::calloc(1, bytes.len().max(1)).cast();
        if block.is_null() {
            return Err(Errno::NO_MEMORY);
        }
        block.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        Ok(block.cast())
    }
}

/// One answer, until it is given to C.
pub(crate) struct Info(*mut fi_info);

/// The ends that an answer names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    pub(crate) source: Option<SocketAddr>,
    pub(crate) destination: Option<SocketAddr>,
    /// The interface of the source: the name of the domain.
    pub(crate) interface: Option<std::ffi::CString>,
}

impl Info {
    pub(crate) fn new(offer: &Offer, ends: &Ends, api: u32) -> Outcome<Info> {
        // SAFETY: a structure of pointers and numbers; all zeros are a value of it.
        let empty: fi_info = unsafe { std::mem::zeroed() };
        let info = Info(allocate(empty)?);
        // SAFETY: allocated above, and named by `info` alone.
        let it = unsafe { &mut *info.0 };
        it.caps = offer.caps;
        it.tx_attr = allocate(offer.tx)?;
        it.rx_attr = allocate(offer.rx)?;
        it.ep_attr = allocate(offer.ep)?;
        it.domain_attr = allocate(offer.domain)?;
        it.fabric_attr = allocate(fi_fabric_attr {
            fabric: std::ptr::null_mut(),
            name: std::ptr::null_mut(),
            prov_name: std::ptr::null_mut(),
            prov_version: attributes::VERSION,
            api_version: api,
        })?;
        let interface = ends.interface.as_deref().unwrap_or(attributes::NAME);
        // SAFETY: allocated above.
        unsafe {
            (*it.domain_attr).name = copy_text(interface)?;
            (*it.fabric_attr).name = copy_text(attributes::NAME)?;
        }
        let family = ends.source.or(ends.destination);
        it.addr_format = family.map_or(FI_SOCKADDR, address::format);
        if let Some(source) = ends.source {
            let bytes = address::encode(source);
            it.src_addr = copy_bytes(&bytes)?;
            it.src_addrlen = bytes.len();
        }
        if let Some(destination) = ends.destination {
            let bytes = address::encode(destination);
            it.dest_addr = copy_bytes(&bytes)?;
            it.dest_addrlen = bytes.len();
        }
        Ok(info)
    }

    /// Makes it the info of a request for a connection, which libfabric passes on as it is. To the answers of
    /// `fi_getinfo` it adds the name of the provider itself.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn of_request(self, handle: *mut fid) -> Outcome<Info> {
        // SAFETY: allocated by `new`, and named by `self` alone.
        unsafe {
            (*self.0).handle = handle;
            (*(*self.0).fabric_attr).prov_name = copy_text(attributes::NAME)?;
        }
        Ok(self)
    }

    /// Gives it to C, which frees it with `fi_freeinfo`.
    pub(crate) fn into_raw(self) -> *mut fi_info {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, with all that it points to, and not given away.
        unsafe {
            let it = &*self.0;
            if !it.domain_attr.is_null() {
                libc::free((*it.domain_attr).name.cast());
            }
            if !it.fabric_attr.is_null() {
                libc::free((*it.fabric_attr).name.cast());
                libc::free((*it.fabric_attr).prov_name.cast());
            }
            let parts: [*mut c_void; 7] = [
                it.tx_attr.cast(),
                it.rx_attr.cast(),
                it.ep_attr.cast(),
                it.domain_attr.cast(),
                it.fabric_attr.cast(),
                it.src_addr,
                it.dest_addr,
            ];
            for part in parts {
                libc::free(part);
            }
            libc::free(self.0.cast());
        }
    }
}

// SAFETY: a list of blocks of malloc, which any thread may use and free.
unsafe impl Send for Info {}

/// The entry point of `fi_getinfo`.
///
/// # Safety
/// libfabric calls it with texts and hints that are null or whole.
pub(crate) unsafe extern "C" fn getinfo(
    api: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int {
    errno::status(|| {
        let info = place(info)?;
        // SAFETY: libfabric's promise.
        let (node, service, hints) = unsafe { (text(node)?, text(service)?, Hints::of(hints)) };
        if let Some(why) = hints.as_ref().and_then(|it| it.mismatch(api)) {
            log::say(
                Level::Info,
                format_args!("not offered: the program asks for {why}"),
            );
            return Err(Errno::NO_DATA);
        }
        let settings = Settings::from_environment().map_err(|why| {
            log::refuse(format_args!("not offered: {why}"));
            Errno::NO_DATA
        })?;
        let offer = Offer::new(hints.as_ref());
        let mut found = find(&settings, node, service, flags, hints.as_ref())?;
        found.retain(|it| meets(it, hints.as_ref()));
        if found.is_empty() {
            return Err(Errno::NO_DATA);
        }
        let made: Vec<Info> = found
            .iter()
            .map(|ends| Info::new(&offer, ends, api))
            .collect::<Outcome<_>>()?;
        let mut next = std::ptr::null_mut();
        for one in made.into_iter().rev() {
            let one = one.into_raw();
            // SAFETY: just made, and not given to C yet.
            unsafe { (*one).next = next };
            next = one;
        }
        // SAFETY: checked above.
        unsafe { info.write(next) };
        Ok(())
    })
}

/// # Safety
/// Null or a text that lives for `'a`.
unsafe fn text<'a>(from: *const c_char) -> Outcome<Option<&'a str>> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(from) };
    text.to_str().map(Some).map_err(|_| Errno::INVALID)
}

/// Whether an answer is of the interface and of the format that the hints name.
fn meets(ends: &Ends, hints: Option<&Hints<'_>>) -> bool {
    let Some(hints) = hints else { return true };
    let of_format = match (hints.info.addr_format, ends.source.or(ends.destination)) {
        (FI_FORMAT_UNSPEC | FI_SOCKADDR, _) => true,
        (format, Some(address)) => address::format(address) == format,
        (format, None) => [FI_SOCKADDR_IN, FI_SOCKADDR_IN6].contains(&format),
    };
    let name = hints.domain.map_or(std::ptr::null_mut(), |it| it.name);
    // SAFETY: libfabric passes null or a text.
    let of_domain = name.is_null()
        || unsafe { CStr::from_ptr(name) } == ends.interface.as_deref().unwrap_or(attributes::NAME);
    of_format && of_domain
}

/// The answers: for a destination, the source that the system would use; without one, all addresses of the host.
fn find(
    settings: &Settings,
    node: Option<&str>,
    service: Option<&str>,
    flags: u64,
    hints: Option<&Hints<'_>>,
) -> Outcome<Vec<Ends>> {
    let interfaces = offered(settings)?;
    let numeric = flags & FI_NUMERICHOST != 0;
    let is_source = flags & FI_SOURCE != 0;
    let (mut source, mut destination) = (None, None);
    if let Some(hints) = hints.map(|it| it.info) {
        // SAFETY: the hints are whole: an address has its length.
        unsafe {
            if !hints.src_addr.is_null() {
                source = Some(address::read(hints.src_addr, hints.src_addrlen)?);
            }
            if !hints.dest_addr.is_null() {
                destination = Some(address::read(hints.dest_addr, hints.dest_addrlen)?);
            }
        }
    }
    if node.is_some() || (service.is_some() && is_source) {
        let resolved = resolve(node, service, numeric)?;
        match is_source {
            true => source = Some(resolved),
            false => destination = Some(resolved),
        }
    }
    let named = |address: SocketAddr| {
        let it = interfaces.iter().find(|it| it.ip == address.ip());
        it.map(|it| it.name.clone())
    };
    let ends = |source: Option<SocketAddr>, interface| Ends {
        source,
        destination,
        interface,
    };
    if let Some(source) = source.filter(|it| !it.ip().is_unspecified()) {
        return match named(source) {
            Some(interface) => Ok(vec![ends(Some(source), Some(interface))]),
            None => Err(Errno::NO_DATA),
        };
    }
    if let Some(to) = destination {
        let from = route(to).map(|ip| SocketAddr::new(ip, 0));
        let interface = from.and_then(named);
        return Ok(vec![ends(from.filter(|_| interface.is_some()), interface)]);
    }
    let port = source.map_or(0, |it| it.port());
    let same = |it: &&Interface| source.is_none_or(|any| any.is_ipv4() == it.ip.is_ipv4());
    let all = interfaces.iter().filter(same);
    Ok(all
        .map(|it| ends(Some(SocketAddr::new(it.ip, port)), Some(it.name.clone())))
        .collect())
}

fn offered(settings: &Settings) -> Outcome<Vec<Interface>> {
    let mut interfaces = address::interfaces()?;
    if let Some(name) = &settings.interface {
        interfaces.retain(|it| it.name.as_bytes() == name.as_bytes());
        if interfaces.is_empty() {
            log::refuse(format_args!(
                "not offered: no interface {name:?} is up with an address (FI_ZEROLANE_IFACE)"
            ));
        }
    }
    Ok(interfaces)
}

/// # Errors
/// The host or service has no address.
fn resolve(node: Option<&str>, service: Option<&str>, numeric: bool) -> Outcome<SocketAddr> {
    let port = match service {
        None => 0,
        Some(service) => service.parse().map_err(|_| Errno::NO_DATA)?,
    };
    let Some(node) = node else {
        return Ok(SocketAddr::from(([0, 0, 0, 0], port)));
    };
    match node.parse::<IpAddr>() {
        Ok(ip) => Ok(SocketAddr::new(ip, port)),
        Err(_) if numeric => Err(Errno::NO_DATA),
        Err(_) => {
            let found = (node, port).to_socket_addrs().map_err(|_| Errno::NO_DATA)?;
            let found: Vec<_> = found.collect();
            let v4 = found.iter().find(|it| it.is_ipv4());
            v4.or(found.first()).copied().ok_or(Errno::NO_DATA)
        }
    }
}

/// The address of this host from which the system would send to `to`. Sends nothing.
fn route(to: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => IpAddr::from([0; 4]),
        SocketAddr::V6(_) => IpAddr::from([0; 16]),
    };
    let socket = std::net::UdpSocket::bind((any, 0)).ok()?;
    // A port is needed, and says nothing.
    socket.connect((to.ip(), to.port().max(1))).ok()?;
    socket.local_addr().ok().map(|it| it.ip())
}
