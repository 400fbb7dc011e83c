//! Evaluates constants from the text of the sources, because most are private to a crate.

use super::WINGS;
use std::fs;
use std::path::Path;

/// Every source file that is not a test, by its path.
pub(super) struct Sources(Vec<(String, String)>);

/// Why an expression has no value.
pub(super) type Trouble = String;

impl Sources {
    /// Reads the sources of all crates.
    pub(super) fn read() -> Sources {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut sources = Sources(vec![]);
        for wing in WINGS {
            sources.read_below(&root.join(wing));
        }
        for (path, _) in &mut sources.0 {
            *path = path.trim_start_matches(&*root.to_string_lossy()).to_owned();
        }
        sources
    }

    fn read_below(&mut self, directory: &Path) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy();
            // The build directory of a package, not a module with this name.
            let builds = name == "target" && directory.join("Cargo.toml").exists();
            if path.is_dir() && name != "tests" && !builds && !name.ends_with("_tests") {
                self.read_below(&path);
            } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
                let text = fs::read_to_string(&path).unwrap();
                self.0.push((path.display().to_string(), text));
            }
        }
    }

    /// The text of each file.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, text)| text.as_str())
    }

    /// The value of an expression of numbers and constants. Durations are in seconds.
    pub(super) fn value(&self, expression: &str) -> Result<f64, Trouble> {
        self.evaluate(expression, None)
    }

    fn evaluate(&self, expression: &str, home: Option<&str>) -> Result<f64, Trouble> {
        let mut parser = Parser {
            sources: self,
            home,
            rest: expression,
        };
        let value = parser.sum()?;
        match parser.rest.trim() {
            "" => Ok(value),
            rest => Err(format!("{expression}: not understood from {rest:?} on")),
        }
    }

    /// The constant, or the default of the field, that `path` names: `module::NAME`; the module is needed only if the
    /// name is ambiguous. Without a module, `home` is searched first.
    fn named(&self, path: &str, home: Option<&str>) -> Result<f64, Trouble> {
        let (modules, name) = path.rsplit_once("::").unwrap_or(("", path));
        let is_in = |file: &str| {
            let mut parts = modules.split("::").filter(|it| {
                let elsewhere = ["", "crate", "self", "super"].contains(it);
                !elsewhere && !it.starts_with("zerolane_")
            });
            parts.all(|part| {
                let mut components = file.split('/').map(|it| it.trim_end_matches(".rs"));
                components.any(|it| it == part)
            })
        };
        let defined = |is_wanted: &dyn Fn(&str) -> bool| -> Vec<(&str, Result<f64, Trouble>)> {
            let files = self.0.iter().filter(|(file, _)| is_wanted(file));
            let definitions = files.flat_map(|(file, text)| {
                definitions(text, name).map(move |it| (file.as_str(), it))
            });
            let evaluated = definitions.map(|(file, it)| (file, self.evaluate(it, Some(file))));
            evaluated.collect()
        };
        let mut found = match modules.is_empty() {
            true => defined(&|file| home == Some(file)),
            false => vec![],
        };
        if found.is_empty() {
            found = defined(&is_in);
        }
        // A field is declared with a type, and gets its value elsewhere.
        if found.len() > 1 {
            found.retain(|(_, value)| value.is_ok());
        }
        match &found[..] {
            [(_, value)] => value.clone().map_err(|it| format!("{path}: {it}")),
            [] => Err(format!("no constant {path}")),
            several => {
                let files: Vec<_> = several.iter().map(|(file, _)| file).collect();
                Err(format!("{path} is in several files: {files:?}"))
            }
        }
    }
}

/// The texts after `const NAME: type =`, or after `name:` where a field gets a value.
fn definitions<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let constant = name.starts_with(char::is_uppercase);
    text.match_indices(name).filter_map(move |(at, _)| {
        let before = text[..at].trim_end_matches(' ');
        let after = text[at + name.len()..].strip_prefix(':')?;
        if constant {
            let statement = before.ends_with("const").then_some(after)?;
            let (statement, _) = statement.split_once(';')?;
            return statement.split_once('=').map(|(_, value)| value);
        }
        let (value, _) = before.ends_with('\n').then_some(after)?.split_once(",\n")?;
        Some(value)
    })
}

struct Parser<'a> {
    sources: &'a Sources,
    home: Option<&'a str>,
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn takes(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn word(&mut self) -> &'a str {
        let rest = self.rest.trim_start();
        let ends = |it: char| !(it.is_alphanumeric() || it == '_' || it == ':' || it == '.');
        let (word, rest) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
        self.rest = rest;
        word
    }

    /// Precedence as in Rust: shifts last. Constants have at most one operator of a level between two factors.
    fn sum(&mut self) -> Result<f64, Trouble> {
        let mut value = self.terms()?;
        while self.takes("<<") {
            value *= self.terms()?.exp2();
        }
        Ok(value)
    }

    fn terms(&mut self) -> Result<f64, Trouble> {
        let mut value = self.product()?;
        loop {
            if self.takes("+") {
                value += self.product()?;
            } else if self.takes("-") {
                value -= self.product()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<f64, Trouble> {
        let mut value = self.factor()?;
        loop {
            if self.takes("*") {
                value *= self.factor()?;
            } else if self.takes("/") {
                value /= self.factor()?;
            } else if self.takes("^") {
                value = value.powf(self.factor()?);
            } else if self.takes("as ") {
                self.word();
            } else {
                return Ok(value);
            }
        }
    }

    fn factor(&mut self) -> Result<f64, Trouble> {
        if self.takes("(") {
            return self.closed();
        }
        let word = self.word();
        if self.takes("(") {
            let argument = self.closed()?;
            return match word.rsplit("::").next() {
                Some("from_secs") => Ok(argument),
                Some("from_millis") => Ok(argument / 1e3),
                Some("from_micros") => Ok(argument / 1e6),
                Some("from_nanos") => Ok(argument / 1e9),
                _ => Err(format!("{word}(..) is no number")),
            };
        }
        if word.starts_with(|it: char| it.is_ascii_digit()) {
            return number(word).ok_or_else(|| format!("{word} is no number"));
        }
        self.sources.named(word, self.home)
    }

    fn closed(&mut self) -> Result<f64, Trouble> {
        let value = self.sum()?;
        match self.takes(")") {
            true => Ok(value),
            false => Err(format!("no ')' before {:?}", self.rest)),
        }
    }
}

fn number(word: &str) -> Option<f64> {
    let digits = word.replace('_', "");
    match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok().map(|it| it as f64),
        None => digits.parse().ok(),
    }
}

#[test]
fn value__of_constants_and_expressions() {
    let source = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let sources = Sources(vec![
        source(
            "x/a.rs",
            "pub(crate) const ONE: usize = 1 << 10;\nconst WAIT: Duration =\n    Duration::from_millis(2 * 250);\n",
        ),
        source(
            "x/b.rs",
            "const ONE: u8 = 7;\nconst TWO: u32 = (ONE as u32 + a::ONE as u32) * 2;\n",
        ),
        source(
            "x/c.rs",
            "struct C {\n    pub most: u32,\n}\nC {\n    most: 3 << 20,\n}\n",
        ),
    ]);
    for (expression, value) in [
        ("a::ONE", 1024.0),
        ("WAIT", 0.5),
        ("TWO", 2062.0),
        ("most / 2", 1_572_864.0),
        ("2^31 - 2", 2_147_483_646.0),
        ("1 / 4 + 0x10", 16.25),
    ] {
        assert_eq!(sources.value(expression), Ok(value), "{expression}");
    }
    for wrong in ["ONE", "NONE", "1 2", "(1", "min(1)"] {
        assert!(sources.value(wrong).is_err(), "{wrong}");
    }
}
