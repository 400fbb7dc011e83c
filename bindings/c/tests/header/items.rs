//! Splits the text of a header into its items. Understands only the C that cbindgen writes.

/// The kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Constant,
    /// An enum, a structure, or an opaque type.
    Type,
    Function,
}

/// A declaration of the header, with the comment before it.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Comment and declaration.
    pub(crate) text: String,
    /// The comment, in paragraphs.
    pub(crate) doc: Vec<String>,
    /// The text after the comment.
    pub(crate) declaration: String,
}

#[derive(Debug)]
pub(crate) struct Header {
    /// The text before the first item.
    pub(crate) prologue: String,
    pub(crate) items: Vec<Item>,
    /// The text after the last item.
    pub(crate) epilogue: String,
}

const OPENING: &str = "#ifdef __cplusplus\nextern \"C\" {\n#endif // __cplusplus\n";
const CLOSING: &str = "#ifdef __cplusplus\n}  // extern \"C\"\n#endif  // __cplusplus\n";

impl Header {
    pub(crate) fn parse(text: &str) -> Header {
        assert!(text.contains(OPENING) && text.contains(CLOSING));
        let first = text.find("\n/**\n").expect("an item") + 1;
        let (items, epilogue) = text[first..].split_once(CLOSING).expect("an end");
        let items = items.replace(OPENING, "");
        let blocks = items
            .strip_prefix("/**\n")
            .expect("an item")
            .split("\n/**\n");
        Header {
            prologue: text[..first].to_owned(),
            items: blocks.map(Item::parse).collect(),
            epilogue: epilogue.to_owned(),
        }
    }
}

impl Item {
    fn parse(block: &str) -> Item {
        let text = format!("/**\n{}", block.trim_end());
        let (doc, declaration) = text.split_once("\n */\n").expect("the comment's end");
        let (kind, name) = named(declaration);
        Item {
            name: name.to_owned(),
            kind,
            doc: paragraphs(doc),
            declaration: declaration.to_owned(),
            text: text.clone(),
        }
    }
}

fn named(declaration: &str) -> (Kind, &str) {
    let beginnings = [
        ("#define ", Kind::Constant),
        ("enum ", Kind::Type),
        ("typedef struct ", Kind::Type),
    ];
    for (beginning, kind) in beginnings {
        if let Some(rest) = declaration.strip_prefix(beginning) {
            return (kind, word(rest));
        }
    }
    let mut calls = declaration
        .match_indices("zl_")
        .map(|(at, _)| &declaration[at..]);
    let name = calls.find(|it| it[word(it).len()..].starts_with('('));
    (
        Kind::Function,
        word(name.expect("the name of what is declared")),
    )
}

/// The identifier at the start of `text`.
pub(crate) fn word(text: &str) -> &str {
    let end = text.find(|it: char| !it.is_ascii_alphanumeric() && it != '_');
    &text[..end.unwrap_or(text.len())]
}

/// The paragraphs of a comment without its marks.
pub(crate) fn paragraphs(comment: &str) -> Vec<String> {
    let lines = comment
        .lines()
        .map(|it| it.trim().trim_start_matches('/').trim_start_matches('*'));
    let mut paragraphs = vec![String::new()];
    for line in lines.map(str::trim) {
        let last = paragraphs.last_mut().expect("there is one");
        match line {
            "" | "/" if last.is_empty() => {}
            "" | "/" => paragraphs.push(String::new()),
            line => {
                if !last.is_empty() {
                    last.push(' ');
                }
                last.push_str(line);
            }
        }
    }
    paragraphs.retain(|it| !it.is_empty());
    paragraphs
}

/// `text` in lines of at most `width` bytes.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is one");
        if last.is_empty() {
            last.push_str(word);
        } else if last.len() + 1 + word.len() <= width {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
