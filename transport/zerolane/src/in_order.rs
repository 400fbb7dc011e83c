//! Returns completed receives in the order in which they were posted.

use std::collections::VecDeque;

use crate::id::RequestId;

/// Posted receives, returned in the order of posting, which is the order of the peer's sends. Receives complete when
/// their Transfers do: after a lost datagram, a later one may complete first. `T` is the value kept for a completed
/// receive until all before it are complete.
#[derive(Debug)]
pub struct InOrder<T> {
    posted: VecDeque<(RequestId, Option<T>)>,
}

impl<T> Default for InOrder<T> {
    fn default() -> InOrder<T> {
        InOrder {
            posted: VecDeque::new(),
        }
    }
}

impl<T> InOrder<T> {
    /// Records that receive `id` was posted, after all recorded before.
    pub fn posted(&mut self, id: RequestId) {
        self.posted.push_back((id, None));
    }

    /// Records that receive `id` completed. Ignored if it was not recorded as posted.
    pub fn completed(&mut self, id: RequestId, received: T) {
        if let Some(it) = self.posted.iter_mut().find(|it| it.0 == id) {
            it.1 = Some(received);
        }
    }

    /// Removes the first receive and returns its value; `None` while it is not complete.
    pub fn pop(&mut self) -> Option<T> {
        self.posted.pop_front_if(|it| it.1.is_some())?.1
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use zerolane_lane::TransferError;

    #[test]
    fn receives__are_taken_in_the_order_in_which_they_were_posted() {
        let id = RequestId::from_u64;
        let mut receives = InOrder::default();
        for number in [7, 3, 5] {
            receives.posted(id(number));
        }
        receives.completed(id(3), Ok(2));
        assert_eq!(receives.pop(), None, "the first was lost on its way");
        receives.completed(id(7), Ok(1));
        assert_eq!(receives.pop(), Some(Ok(1)));
        assert_eq!(receives.pop(), Some(Ok(2)));
        assert_eq!(receives.pop(), None);
        receives.completed(id(5), Err(TransferError::Cancelled));
        receives.completed(id(9), Ok(4));
        assert_eq!(receives.pop(), Some(Err(TransferError::Cancelled)));
        assert_eq!(receives.pop(), None);
    }
}
