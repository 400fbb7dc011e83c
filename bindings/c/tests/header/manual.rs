//! Makes a manual page in mdoc of each section of the header.

use super::find;
use super::items::{Header, Item, Kind, paragraphs, word, wrapped};
use super::sections::{DATE, SECTIONS, Section};
use std::fmt::Write;

/// Longest line of a page, by mdoc's style.
const WIDTH: usize = 78;

pub(crate) fn page(section: &Section, header: &Header) -> String {
    let items: Vec<&Item> = section.items.iter().map(|it| find(header, it)).collect();
    let functions: Vec<&Item> = of_kind(&items, Kind::Function);
    let mut page = String::new();
    let put = &mut page;
    line(
        put,
        ".\\\" Made from bindings/c/src by tests/header; do not edit.",
    );
    line(put, &format!(".Dd {DATE}"));
    line(put, &format!(".Dt {} 3", section.page.to_uppercase()));
    line(put, ".Os");
    line(put, ".Sh NAME");
    for (index, function) in functions.iter().enumerate() {
        let comma = if index + 1 < functions.len() {
            " ,"
        } else {
            ""
        };
        line(put, &format!(".Nm {}{comma}", function.name));
    }
    line(put, &format!(".Nd {}", lower(section.title)));
    line(put, ".Sh LIBRARY");
    line(put, "Zerolane (libzerolane, \\-lzerolane)");
    line(put, ".Sh SYNOPSIS");
    line(put, ".In zerolane.h");
    for function in &functions {
        prototype(put, function);
    }
    line(put, ".Sh DESCRIPTION");
    text(put, section.about);
    list(put, &functions, |it| format!("Fn {}", it.name));
    let types = of_kind(&items, Kind::Type);
    let constants = of_kind(&items, Kind::Constant);
    if !types.is_empty() {
        line(put, ".Ss Types");
        list(put, &types, |it| format!("Vt {}", it.name));
    }
    if !constants.is_empty() {
        line(put, ".Ss Constants");
        list(put, &constants, |it| {
            format!("Dv {}", it.declaration["#define ".len()..].trim())
        });
    }
    line(put, ".Sh RETURN VALUES");
    text(
        put,
        "A function that returns a zl_status returns ZL_OK, another value that is not negative, or a negative code \
         of failure; then zl_last_error describes the failure in a sentence.",
    );
    line(put, ".Sh SEE ALSO");
    let mut others: Vec<_> = SECTIONS.iter().map(|it| it.page).collect();
    others.retain(|it| *it != section.page);
    others.sort_unstable();
    for (index, other) in others.iter().enumerate() {
        let comma = if index + 1 < others.len() { " ," } else { "" };
        line(put, &format!(".Xr {other} 3{comma}"));
    }
    page
}

fn of_kind<'a>(items: &[&'a Item], kind: Kind) -> Vec<&'a Item> {
    items.iter().copied().filter(|it| it.kind == kind).collect()
}

fn line(page: &mut String, line: &str) {
    page.push_str(line);
    page.push('\n');
}

fn lower(title: &str) -> String {
    let mut letters = title.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_lowercase().chain(letters).collect()
    })
}

fn prototype(page: &mut String, function: &Item) {
    let at = function
        .declaration
        .find(&format!("{}(", function.name))
        .expect("its name");
    let before = function.declaration[..at].trim();
    let arguments = &function.declaration[at + function.name.len() + 1..];
    let arguments = arguments.strip_suffix(");").expect("an end");
    // A comma within a callback's arguments separates none of the function's.
    let mut open = 0;
    let between = |it: char| {
        open += i32::from(it == '(') - i32::from(it == ')');
        it == ',' && open == 0
    };
    line(page, &format!(".Ft {before}"));
    line(page, &format!(".Fo {}", function.name));
    for argument in arguments.split(between) {
        let argument = argument.split_whitespace().collect::<Vec<_>>().join(" ");
        line(page, &format!(".Fa \"{argument}\""));
    }
    line(page, ".Fc");
}

/// Each item with its comment.
fn list(page: &mut String, items: &[&Item], head: impl Fn(&Item) -> String) {
    line(page, ".Bl -tag -width Ds");
    for item in items {
        line(page, &format!(".It {}", head(item)));
        for (index, paragraph) in item.doc.iter().enumerate() {
            if index > 0 {
                line(page, ".Pp");
            }
            text(page, paragraph);
        }
        members(page, item);
    }
    line(page, ".El");
}

/// The members of a structure, the values of an enum.
fn members(page: &mut String, item: &Item) {
    let mut members = item.declaration.split("    /**\n").skip(1).peekable();
    if members.peek().is_none() {
        return;
    }
    line(page, ".Bl -tag -width Ds");
    for member in members {
        let (comment, rest) = member.split_once("     */\n").expect("the comment's end");
        let declared = rest.lines().next().expect("a member").trim();
        let declared = declared.trim_end_matches([',', ';']);
        let macro_name = if declared.starts_with("ZL_") {
            "Dv"
        } else {
            "Va"
        };
        line(page, &format!(".It {macro_name} {declared}"));
        for paragraph in paragraphs(comment) {
            text(page, &paragraph);
        }
    }
    line(page, ".El");
}

/// A paragraph: each sentence starts a line, and names are in italics.
fn text(page: &mut String, paragraph: &str) {
    let mut sentences = vec![String::new()];
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    for (index, &it) in words.iter().enumerate() {
        let last = sentences.last_mut().expect("there is one");
        if !last.is_empty() {
            last.push(' ');
        }
        last.push_str(&marked(it));
        let ends = it.ends_with('.') || it.ends_with(".)");
        if ends && index + 1 < words.len() {
            sentences.push(String::new());
        }
    }
    for sentence in sentences {
        for it in wrapped(&sentence, WIDTH) {
            let guard = if it.starts_with(['.', '\'']) {
                "\\&"
            } else {
                ""
            };
            let _ = writeln!(page, "{guard}{it}");
        }
    }
}

/// Puts names in backticks and names of the header in italics.
fn marked(text: &str) -> String {
    let escaped = text.replace('\\', "\\e");
    let parts: Vec<&str> = escaped.split('`').collect();
    if parts.len() == 3 {
        return format!("{}\\fI{}\\fP{}", parts[0], parts[1], parts[2]);
    }
    let at = escaped
        .find(|it: char| it.is_ascii_alphabetic())
        .unwrap_or(0);
    let name = word(&escaped[at..]);
    if name.starts_with("zl_") {
        let (before, behind) = (&escaped[..at], &escaped[at + name.len()..]);
        return format!("{before}\\fI{name}\\fP{behind}");
    }
    escaped
}
