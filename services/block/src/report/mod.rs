//! Builds the parameter data that commands return.

mod capacity;
mod inquiry;
mod mode;
mod opcodes;
mod vital;

pub(crate) use capacity::{capacity_10, capacity_16, unit_list};
pub(crate) use inquiry::absent;
pub use inquiry::standard as standard_inquiry;
pub use inquiry::{PRODUCT, REVISION, VENDOR};
pub(crate) use mode::{ModeQuery, sense as mode_sense};
pub(crate) use opcodes::opcodes;
pub use vital::{PAGES as VITAL_PAGES, page as vital_page};
