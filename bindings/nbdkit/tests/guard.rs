//! Tests that panics stay in the plugin.

#![allow(non_snake_case)]
#![allow(dead_code)] // The plugin uses the rest.

#[path = "../src/failure.rs"]
mod failure;
#[path = "../src/guard.rs"]
mod guard;

use failure::Failure;

#[test]
fn caught__a_panic_is_a_failure_in_words() {
    let failed = guard::caught(|| -> Result<(), Failure> { panic!("{} is odd", 7) }).unwrap_err();
    assert!(failed.words.contains("7 is odd"), "{}", failed.words);
    assert_eq!(failed.errno, 5);
    let failed = guard::caught(|| -> Result<(), Failure> { panic!("plain") }).unwrap_err();
    assert!(failed.words.contains("plain"), "{}", failed.words);
    assert!(matches!(guard::caught(|| Ok(3)), Ok(3)));
    let failed = guard::caught(|| -> Result<(), Failure> { Err(Failure::usage("no")) });
    assert_eq!(failed.unwrap_err().words, "no");
}

/// The text of the plugin's table of functions: each that nbdkit calls does all that it does under the guard, or returns a constant.
#[test]
fn callbacks__are_all_under_the_guard() {
    let source = include_str!("../src/abi.rs");
    let mut seen = 0;
    for callback in source.split("\nunsafe extern \"C\" fn ").skip(1) {
        let (name, rest) = callback.split_once('(').unwrap();
        let (_, body) = rest.split_once(" {\n").unwrap();
        let (body, _) = body.split_once("\n}\n").unwrap();
        let mut lines = body.lines().map(str::trim);
        let first = lines.find(|it| !it.starts_with("//")).unwrap();
        let is_constant = !body.contains('(');
        let is_guarded = first.starts_with("guarded(") || first.starts_with("outcome(");
        assert!(is_constant || is_guarded, "{name}: {first}");
        seen += 1;
    }
    assert!(seen >= 18, "{seen}");
    let body = |signature: &str| {
        let (_, rest) = source.split_once(signature).unwrap();
        let (_, body) = rest.split_once(" {\n").unwrap();
        body.trim_start()
    };
    assert!(body("\nfn guarded<").starts_with("guard::caught(call)"));
    assert!(body("\nfn outcome(").starts_with("guarded("));
}
