#![allow(non_snake_case)]

use super::*;

#[test]
fn take_kept__of_an_old_file_that_changed_since_it_was_offered() {
    let bytes = vec![1; 3 * UNIT_BYTES];
    let options = CopyOptions {
        resume: true,
        delta: true,
        ..CopyOptions::default()
    };
    for changed in [false, true] {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("f");
        std::fs::write(&path, &bytes).unwrap();
        let directory = Arc::new(OwnedFd::from(std::fs::File::open(base.path()).unwrap()));
        let digester = Digester::fixed();
        let (name, size) = ((&b"f"[..], false), bytes.len() as u64);
        let meta = Meta::default();
        let mut open = OpenFile::create(&directory, name, meta, size, &options, &digester).unwrap();
        let (digests, last) = hash_left_over(&mut open);
        assert!(last && digests.len() == 3);
        if changed {
            let mut other = bytes.clone();
            other[UNIT_BYTES + 7] = 2;
            std::fs::write(&path, other).unwrap();
        }
        for _ in 0..2 {
            open.take_kept().unwrap().unwrap();
        }
        let outcome = open.take_unit(&bytes[..UNIT_BYTES]).unwrap();
        match changed {
            true => assert_eq!(outcome, Err(Cause::TargetChanged)),
            false => outcome.unwrap(),
        }
    }
}
