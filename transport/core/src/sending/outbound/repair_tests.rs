//! Tests that repairs exclude payload in flight, and that losses of trains count once.
#![allow(non_snake_case)]
use super::*;
use proptest::prelude::*;

#[test]
fn without__nothing_excepted_is_all() {
    assert_eq!(without(3, 9, &[]), [(3, 9)]);
    assert_eq!(without(9, 9, &[]), []);
    assert_eq!(without(9, 3, &[(4, 5)]), []);
}

proptest! {
    /// Byte by byte: a byte is in a part if no exception covers it, however ranges overlap.
    #[test]
    fn without__agrees_with_a_set(
        start in 0..60u32,
        end in 0..60u32,
        mut excepted in prop::collection::vec((0..60u32, 0..12u32), 0..12),
    ) {
        for it in &mut excepted {
            it.1 += it.0;
        }
        excepted.sort_unstable();
        let parts = without(start, end, &excepted);
        for byte in 0..80 {
            let wanted = (start..end).contains(&byte)
                && !excepted.iter().any(|&(from, to)| (from..to).contains(&byte));
            let found = parts.iter().filter(|&&(from, to)| (from..to).contains(&byte)).count();
            prop_assert_eq!(found, usize::from(wanted), "{}", byte);
        }
        prop_assert!(parts.iter().all(|&(from, to)| from < to));
        prop_assert!(parts.is_sorted());
    }
}

#[test]
fn lost__a_train_counts_as_one_datagram() {
    let dropped = |bytes, longest| Lost::of(bytes, longest, 1000).dropped;
    assert_eq!(dropped(48_000, 0), 48_000, "no train left");
    assert_eq!(dropped(48_000, 48_000), 1000);
    assert_eq!(dropped(20_000, 48_000), 1000, "the last of a Block");
    assert_eq!(dropped(48_001, 48_000), 2000, "two in a row");
    assert_eq!(dropped(600, 48_000), 600, "less than a datagram");
    assert_eq!(Lost::of(48_000, 48_000, 1000).bytes, 48_000);
}
