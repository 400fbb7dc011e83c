//! Predicts which payload comes next, and where it belongs.

use super::{PlacementTable, Position};
use crate::receiving::forecast::{Forecast, Run};

impl PlacementTable {
    /// Predicts the next `stus` STUs of `stu` bytes each: the stream behind the furthest arrival, and after the end of
    /// the stream, lost payload.
    pub(crate) fn forecast(&self, stu: u32, stus: u32, out: &mut Forecast) {
        out.clear();
        self.forecast_from(self.cursor, stu, stus, out);
        if out.is_empty() {
            self.forecast_from((self.base, 0), stu, stus, out);
        }
    }

    fn forecast_from(&self, from: Position, stu: u32, mut stus: u32, out: &mut Forecast) {
        let skip = self.index(from.0);
        for (index, block) in self.blocks.iter().enumerate().skip(skip) {
            let mut at = if index == skip { from.1 } else { 0 };
            while stus > 0 && block.is_expected() {
                let Some((start, end)) = block.gaps.from(at) else {
                    break;
                };
                let (bytes, count) = crate::tiling::burst(
                    block.address + u64::from(start),
                    end - start,
                    stu,
                    self.buffer_log2,
                    stus,
                );
                if !out.push(Run {
                    span: block.span.part(u64::from(start), u64::from(bytes)),
                    stu,
                    trains: block.trains,
                }) {
                    return;
                }
                stus -= count;
                at = start + bytes;
            }
            if stus == 0 {
                return;
            }
        }
    }
}
