//! Resolves addresses to names.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use blazesym::MaybeDefault;
use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{Input, Symbolizer};

use crate::chosen::Chosen;
use crate::processes::Mapping;
use crate::rules::{Named, Rules};
use crate::stack::Frame;

/// Names kept. When there are more, all are looked up anew.
const CACHE_LIMIT: usize = 1 << 17;

/// The names of the kernel's functions and of those in files, with what the rules say of them.
pub(crate) struct Symbols {
    rules: Rules,
    chosen: Chosen,
    symbolizer: Symbolizer,
    kernel: Source<'static>,
    kernel_names: HashMap<u64, Rc<Named>>,
    file_names: HashMap<(Arc<str>, u64), Rc<Named>>,
}

impl Symbols {
    pub(crate) fn new() -> Symbols {
        let kernel = Kernel {
            // The running kernel's own list is exact; an image on disk may be of another kernel.
            vmlinux: MaybeDefault::None,
            debug_syms: false,
            ..Kernel::default()
        };
        let symbolizer = Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_code_info(false)
            .build();
        Symbols {
            rules: Rules::new(),
            chosen: Chosen::find(),
            symbolizer,
            kernel: Source::Kernel(kernel),
            kernel_names: HashMap::new(),
            file_names: HashMap::new(),
        }
    }

    pub(crate) fn kernel_frame(&mut self, address: u64) -> Rc<Named> {
        if let Some(frame) = self.kernel_names.get(&address) {
            return frame.clone();
        }
        let frame = Frame::Kernel(self.name(&self.kernel, Input::AbsAddr(address)));
        let frame = Rc::new(self.rules.name(frame));
        limit(&mut self.kernel_names);
        self.kernel_names.insert(address, frame.clone());
        frame
    }

    /// The function at `address`, which is in `mapping`.
    pub(crate) fn user_frame(&mut self, mapping: Option<&Mapping>, address: u64) -> Rc<Named> {
        let Some(mapping) = mapping else {
            return Rc::new(self.rules.name(Frame::User {
                module: "unknown".into(),
                symbol: None,
            }));
        };
        let offset = address
            .wrapping_sub(mapping.start)
            .wrapping_add(mapping.offset);
        let key = (mapping.path.clone(), offset);
        if let Some(frame) = self.file_names.get(&key) {
            return frame.clone();
        }
        let frame = Rc::new(self.rules.name(self.file_frame(&mapping.path, offset)));
        limit(&mut self.file_names);
        self.file_names.insert(key, frame.clone());
        frame
    }

    fn file_frame(&self, path: &str, offset: u64) -> Frame {
        let name = path.rsplit('/').next().unwrap_or(path);
        let mut elf = Elf::new(path);
        elf.debug_syms = false;
        // A pipe at that place would be waited for.
        let is_file = fs::metadata(Path::new(path)).is_ok_and(|it| it.is_file());
        let symbol = is_file
            .then(|| self.name(&Source::Elf(elf), Input::FileOffset(offset)))
            .flatten()
            .or_else(|| self.chosen.name(path, offset).map(Into::into));
        Frame::User {
            module: name.trim_matches(['[', ']']).into(),
            symbol,
        }
    }

    fn name(&self, source: &Source<'_>, address: Input<u64>) -> Option<Arc<str>> {
        let found = self.symbolizer.symbolize_single(source, address).ok()?;
        found.as_sym().map(|it| it.name.as_ref().into())
    }
}

fn limit<K, V>(names: &mut HashMap<K, V>) {
    if names.len() >= CACHE_LIMIT {
        names.clear();
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn user_frame__of_a_function_of_this_program() {
        let address = user_frame__of_a_function_of_this_program as fn() as usize as u64;
        let mut processes = crate::processes::Processes::new(false, true);
        processes.look_up(std::process::id());
        let mapping = processes.mapping(std::process::id(), address);
        let frame = &Symbols::new().user_frame(mapping, address).frame;
        assert!(
            frame.to_string().contains("user_frame__of_a_function"),
            "{frame}"
        );
    }

    #[test]
    fn user_frame__of_what_is_no_file() {
        let mut symbols = Symbols::new();
        for (path, words) in [
            ("/no/such/file", "[file]"),
            ("[vdso]", "[vdso]"),
            ("/proc", "[proc]"),
        ] {
            let mapping = Mapping {
                start: 0x1000,
                len: 0x1000,
                offset: 0,
                path: path.into(),
            };
            assert_eq!(
                symbols.user_frame(Some(&mapping), 0x1234).frame.to_string(),
                words
            );
        }
        assert_eq!(symbols.user_frame(None, 1).frame.to_string(), "[unknown]");
    }
}
