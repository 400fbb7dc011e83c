//! Tests that a pool gives its memory in order, fairly, and gets it back.
#![allow(non_snake_case)]
use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A member, and how often it was woken.
fn join(pool: &ReceivePool) -> (Member, Arc<AtomicUsize>) {
    let woken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&woken);
    let wake = move || {
        count.fetch_add(1, Ordering::Relaxed);
    };
    (pool.join(Arc::new(wake)), woken)
}

fn add(pool: &ReceivePool, contexts: std::ops::Range<u64>) {
    for context in contexts {
        pool.add(Region::from_vec(vec![0; 8]), context)
            .expect("open");
    }
}

fn context(taken: Option<(Region, u64)>) -> Option<u64> {
    taken.map(|it| it.1)
}

#[test]
fn take__in_the_order_of_adding_and_none_of_an_empty_pool() {
    let pool = ReceivePool::default();
    let (mut one, woken) = join(&pool);
    assert_eq!(context(one.take()), None);
    assert!(one.waits());
    add(&pool, 7..9);
    assert_eq!((pool.len(), woken.load(Ordering::Relaxed)), (2, 1));
    assert_eq!(context(one.take()), Some(7));
    assert!(!one.waits());
    one.on_message_over();
    assert_eq!(context(one.take()), Some(8));
    assert!(pool.is_empty());
}

/// A peer that begins messages and never ends them has half of the pool, the next one half of the rest.
#[test]
fn take__leaves_as_much_as_a_connection_holds() {
    let pool = ReceivePool::default();
    add(&pool, 0..64);
    let mut members: Vec<_> = (0..6).map(|_| join(&pool).0).collect();
    let held = members.iter_mut().map(|it| {
        let taken = std::iter::from_fn(|| it.take());
        taken.count()
    });
    assert_eq!(held.collect::<Vec<_>>(), [32, 16, 8, 4, 2, 1]);
    assert_eq!(pool.len(), 1, "for the next");
    let (mut next, _) = join(&pool);
    assert!(next.take().is_some());
}

#[test]
fn take__keeps_memory_back_for_those_that_wait_longer() {
    let pool = ReceivePool::default();
    let (mut first, first_woken) = join(&pool);
    let (mut second, second_woken) = join(&pool);
    assert!(first.take().is_none() && second.take().is_none());
    add(&pool, 0..1);
    let woken = || [&first_woken, &second_woken].map(|it| it.load(Ordering::Relaxed));
    assert_eq!(woken(), [1, 0]);
    let (mut greedy, _) = join(&pool);
    assert!(greedy.take().is_none() && second.take().is_none());
    assert_eq!(context(first.take()), Some(0));
    add(&pool, 1..3);
    assert_eq!(woken(), [1, 1]);
    assert_eq!(context(greedy.take()), Some(1), "there is one for each");
    assert_eq!(context(second.take()), Some(2));
}

/// One that waits and may not take more must not keep others from what is there.
#[test]
fn take__is_not_delayed_by_one_that_holds_much() {
    let pool = ReceivePool::default();
    add(&pool, 0..2);
    let (mut greedy, greedy_woken) = join(&pool);
    let (mut other, woken) = join(&pool);
    assert!(greedy.take().is_some() && greedy.take().is_none());
    assert!(other.take().is_some() && other.take().is_none());
    other.on_message_over();
    assert!(other.take().is_none());
    add(&pool, 2..3);
    assert_eq!(greedy_woken.load(Ordering::Relaxed), 0);
    assert_eq!(woken.load(Ordering::Relaxed), 1);
    assert!(greedy.take().is_none());
    assert_eq!(context(other.take()), Some(2));
}

#[test]
fn stop_waiting__passes_on_what_was_kept_back() {
    let pool = ReceivePool::default();
    let (mut first, _) = join(&pool);
    let (mut second, woken) = join(&pool);
    assert!(first.take().is_none() && second.take().is_none());
    add(&pool, 0..1);
    assert_eq!(woken.load(Ordering::Relaxed), 0);
    drop(first);
    assert_eq!(woken.load(Ordering::Relaxed), 1);
    assert!(second.take().is_some());
}

#[test]
fn close__returns_what_is_left_and_later_what_comes_back() {
    let pool = ReceivePool::default();
    add(&pool, 0..3);
    let (mut member, woken) = join(&pool);
    let (memory, first) = member.take().expect("some");
    pool.close();
    assert!(member.take().is_none() && pool.len() == 2);
    assert_eq!(
        [pool.remove(), pool.remove()].map(context),
        [Some(1), Some(2)]
    );
    assert!(pool.is_empty());
    pool.add(Region::from_vec(vec![1]), 9).expect_err("closed");
    pool.give_back(memory, first);
    assert!(member.take().is_none());
    assert_eq!(woken.load(Ordering::Relaxed), 0);
    assert_eq!([pool.remove(), pool.remove()].map(context), [Some(0), None]);
}

#[test]
fn notify_below__once() {
    let pool = ReceivePool::default();
    let notices = Arc::new(AtomicUsize::new(0));
    let notify = |limit| {
        let notices = Arc::clone(&notices);
        pool.notify_below(limit, move || {
            notices.fetch_add(1, Ordering::Relaxed);
        });
    };
    let count = || notices.load(Ordering::Relaxed);
    add(&pool, 0..4);
    notify(3);
    let (mut member, _) = join(&pool);
    assert!(member.take().is_some());
    assert_eq!(count(), 0, "three are left");
    assert!(member.take().is_some());
    assert_eq!(count(), 1);
    member.on_message_over();
    assert!(member.take().is_some());
    assert_eq!(count(), 1, "it was told");
    notify(2);
    assert_eq!(count(), 2, "at once");
}
