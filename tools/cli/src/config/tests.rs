//! Tests that configuration files are parsed and merged, and that errors name the line.
#![allow(non_snake_case)]

use super::*;

fn parse(text: &str) -> Result<Config, String> {
    of_files(&[("one", text)])
}

fn of_files(files: &[(&str, &str)]) -> Result<Config, String> {
    let mut config = Config::default();
    for (name, text) in files {
        let path = PathBuf::from(name);
        let settings = file::parse(text, &path).map_err(|why| format!("{why:#}"))?;
        config.settings.extend(settings);
        config.files.push((path, true));
    }
    Ok(config)
}

#[test]
fn parse__every_key() {
    let key = zerolane::security::Identity::from_secret([7; 32]).public();
    let config = parse(&format!(
        "[client]\nrsh = 'ssh -q'\nremote-program = 'zl'\nremote-listen = ':7-8'\ntimeout = 0x10\n\
         [host.far]\nname = '192.0.2.7'\nuser = 'me'\nport = 65535\nserver-key = '{key}'\ntimeout = 5\n\
         [host.'a.b']\nrsh = 'x'\n\
         [serve]\nlisten = 'localhost:7'\nstdio-listen = ':7'\nread-only = true\nallowed = 'file'\n\
         schedule = 'fair'\nlog = 'json'\nmetrics = '127.0.0.1:9182'\n"
    ))
    .unwrap();
    let far = [Section::Host("far".into()), Section::Client];
    assert_eq!(config.text(&far, "rsh"), Some("ssh -q"));
    assert_eq!(config.number(&far, "timeout"), Some(5));
    assert_eq!(config.number(&[Section::Client], "timeout"), Some(16));
    assert_eq!(config.parsed(&far, "server-key"), Some(key));
    assert_eq!(
        config.text(&[Section::Host("a.b".into())], "rsh"),
        Some("x")
    );
    assert_eq!(config.flag(&[Section::Serve], "read-only"), Some(true));
    assert_eq!(config.text(&[Section::Serve], "allowed"), Some("file"));
    assert!(parse("").unwrap().settings.is_empty());
}

#[test]
fn parse__what_is_not_known_is_told_by_line_with_the_nearest() {
    for (text, words) in [
        (
            "[client]\n\ntimout = 1\n",
            "line 3: [client] has no \"timout\": is \"timeout\" meant?",
        ),
        (
            "[clients]\n",
            "line 1: there is no section \"clients\": is \"client\" meant?",
        ),
        (
            "# x\n[host.far]\nprot = 1",
            "line 3: [host.far] has no \"prot\": is \"port\" meant?",
        ),
        (
            "[host.\"a b\"]\nxyzzyxyzzy = 1",
            "[host.\"a b\"] has no \"xyzzyxyzzy\", but ",
        ),
        ("timeout = 1", "line 1: there is no section \"timeout\""),
        ("client = 1", "line 1: this is a section: [client]"),
        ("[host]\nport = 1", "line 2: this is a section: [host.port]"),
        ("[client]\ntimeout = 1\ntimeout = 2", "line 3: "),
        ("[client]\ntimeout", "line 2: "),
        ("[client\n", "line 1: "),
    ] {
        let why = parse(text).unwrap_err();
        assert!(why.contains(words), "{text:?}: {why}");
        assert!(!why.contains('\n'), "{why:?}");
    }
}

#[test]
fn parse__values_are_checked() {
    for (text, words) in [
        (
            "[client]\ntimeout = 'x'",
            "line 2: timeout: a number from 0 to 4294967295 is wanted",
        ),
        ("[client]\ntimeout = -1", "is wanted"),
        ("[client]\nrsh = ''", "rsh: it is empty"),
        ("[client]\nrsh = 1", "a text in quotes is wanted"),
        ("[client]\nremote-listen = ':x'", "is no port"),
        ("[host.a]\nport = 0", "a number from 1 to 65535 is wanted"),
        ("[host.a]\nserver-key = 'zl:x'", "not a key"),
        ("[serve]\nlisten = 'a:b:c'", "listen: "),
        ("[serve]\nread-only = 'yes'", "true or false is wanted"),
        ("[serve]\nlog = 'xml'", "one of text, json is wanted"),
        (
            "[serve]\nschedule = 'x'",
            "one of auto, fair, fast, shortest is wanted",
        ),
        ("[serve]\nmetrics = 'here'", "an address and a port"),
        ("[serve]\nlisten = ['a']", "is wanted"),
    ] {
        let why = parse(text).unwrap_err();
        assert!(why.contains(words), "{text:?}: {why}");
    }
}

#[test]
fn find__the_first_file_and_the_first_section_decide() {
    let user = "[client]\ntimeout = 1\n[host.far]\nrsh = 'of far'\n";
    let system = "[client]\nrsh = 'of all'\ntimeout = 3\n[host.far]\ntimeout = 4\nport = 7\n";
    let config = of_files(&[("user", user), ("system", system)]).unwrap();
    let far = [Section::Host("far".into()), Section::Client];
    assert_eq!(config.text(&far, "rsh"), Some("of far"));
    assert_eq!(config.text(&[Section::Client], "rsh"), Some("of all"));
    assert_eq!(config.number(&far, "timeout"), Some(1));
    assert_eq!(config.number(&far, "port"), Some(7));
    assert_eq!(config.number(&[Section::Client], "port"), None);
}
