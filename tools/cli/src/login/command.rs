//! Builds the command that logs in. As in rsync, no part of a location can become one of its options.

use std::process::Command;

use anyhow::{Result, bail, ensure};
use zerolane::lanes::is_ethernet;
use zerolane_files::Host;

/// The programs to start, here and on the other host.
#[derive(Debug)]
pub(super) struct Program<'a> {
    /// The remote shell and its options, if named.
    pub(super) shell: Option<&'a str>,
    /// The zerolane command for the remote host's shell, if named.
    pub(super) remote: Option<&'a str>,
}

impl Program<'_> {
    /// The zerolane command for the remote host's shell.
    pub(super) fn remote(&self) -> &str {
        self.remote.unwrap_or("zerolane")
    }

    fn shell(&self) -> &str {
        self.shell.unwrap_or("ssh")
    }
}

/// Builds `ssh [OPTION...] [-l USER] [-p PORT] HOST zerolane WORD...`. The shell on the host parses the words.
///
/// # Errors
/// The user or host is not a valid name, or the shell is empty.
pub(super) fn of(host: &Host, program: &Program<'_>, words: &[&str]) -> Result<Command> {
    ensure!(
        !is_ethernet(&host.name),
        "no login leads to {}, an address of raw Ethernet",
        host.name
    );
    check(&host.name, "host")?;
    let shell = split(program.shell())?;
    let Some((first, options)) = shell.split_first() else {
        bail!("--rsh names no program");
    };
    let mut command = Command::new(first);
    command.args(options);
    if let Some(user) = &host.user {
        check(user, "user")?;
        command.args(["-l", user]);
    }
    if let Some(port) = host.port {
        command.arg("-p").arg(port.to_string());
    }
    command.arg(&host.name);
    // The user chose the first word for the shell on the host, as with rsync's --rsync-path.
    command.arg(program.remote()).args(words);
    Ok(command)
}

/// Refuses names that a remote shell, or a command in its configuration (ProxyCommand, Match exec), could misinterpret.
/// OpenSSH refuses the same since 9.6.
fn check(name: &str, what: &str) -> Result<()> {
    ensure!(
        !name.starts_with('-'),
        "no {what} begins with '-': {name:?}"
    );
    let odd = |it: char| it.is_whitespace() || it.is_control() || "'`\"$\\;&<>|(){}".contains(it);
    ensure!(!name.contains(odd), "this is no {what}: {name:?}");
    Ok(())
}

/// Splits a command at spaces. Quotes group words, and a doubled quote inside quotes is one quote; nothing else is
/// special.
fn split(text: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut open = None;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (open, letter) {
            (Some(quote), _) if letter == quote => match letters.next_if_eq(&quote) {
                Some(quote) => word.get_or_insert_default().push(quote),
                None => open = None,
            },
            (None, '\'' | '"') => {
                open = Some(letter);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    ensure!(open.is_none(), "--rsh: a quote is not closed: {text}");
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn words(host: &Host, shell: &str, remote: Option<&str>) -> Vec<String> {
        let shell = Some(shell);
        let command = of(host, &Program { shell, remote }, &["serve", "--stdio"]).unwrap();
        let all = std::iter::once(command.get_program()).chain(command.get_args());
        all.map(|it| it.to_str().unwrap().to_owned()).collect()
    }

    fn host(user: Option<&str>, name: &str, port: Option<u16>) -> Host {
        let (user, name) = (user.map(str::to_owned), name.to_owned());
        Host { user, name, port }
    }

    #[test]
    fn of__as_rsync_makes_it() {
        let tail = ["zerolane", "serve", "--stdio"];
        let made = words(&host(Some("me"), "far", Some(2222)), "ssh -i key", None);
        let expected = ["ssh", "-i", "key", "-l", "me", "-p", "2222", "far"];
        assert_eq!(made, [&expected[..], &tail].concat());
        let made = words(&host(None, "::1", None), "docker exec -i", None);
        assert_eq!(made, [&["docker", "exec", "-i", "::1"][..], &tail].concat());
        let made = words(
            &host(None, "far", None),
            "ssh",
            Some("sudo '/opt/my dir/zl'"),
        );
        assert_eq!(
            made,
            ["ssh", "far", "sudo '/opt/my dir/zl'", "serve", "--stdio"]
        );
    }

    #[test]
    fn of__nothing_becomes_an_option_or_a_command() {
        for odd in [
            "-oProxyCommand=x",
            "-l",
            "a b",
            "a;b",
            "$(x)",
            "`x`",
            "a\nb",
            "a'b",
            "a|b",
            "a\0",
        ] {
            let program = Program {
                shell: Some("ssh"),
                remote: None,
            };
            assert!(
                of(&host(None, odd, None), &program, &[]).is_err(),
                "{odd:?}"
            );
            assert!(
                of(&host(Some(odd), "far", None), &program, &[]).is_err(),
                "{odd:?}"
            );
        }
    }

    #[test]
    fn split__as_rsync_does() {
        for (text, expected) in [
            ("ssh", &["ssh"][..]),
            (" ssh  -p 7 ", &["ssh", "-p", "7"]),
            ("ssh -o 'A b' \"c d\"e", &["ssh", "-o", "A b", "c de"]),
            ("x 'it''s' \"a\"\"b\" ''", &["x", "it's", "a\"b", ""]),
            ("x a\\ b $(c)", &["x", "a\\", "b", "$(c)"]),
        ] {
            assert_eq!(split(text).unwrap(), expected, "{text}");
        }
        assert!(split("ssh 'a").is_err());
    }
}
