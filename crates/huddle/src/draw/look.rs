//! Measures of a drawing, in pixels, and which boxes they apply to.

use super::text;
use super::units::{Level, Unit};

/// Font size of the marks of levels that cut across the boxes.
pub const MARK: i32 = 8;

/// Measures of a drawing, in pixels.
#[derive(Clone, Debug)]
pub struct Look {
    /// Whether CPUs are too many to be numbered one by one.
    pub dense: bool,
    /// Width of a CPU.
    pub cell_width: i32,
    /// Height of a CPU, marks excepted.
    pub cell_height: i32,
    /// Height of the mark of one level that cuts across the boxes.
    pub mark_height: i32,
    /// Number of such marks.
    pub marks: i32,
    /// Font size of CPU numbers.
    pub number: i32,
    /// Font size of names in a box of many CPUs.
    pub name: i32,
    /// Font size of names, strips and ranges in small boxes.
    pub small: i32,
    /// Room between the edge of a box and what is in it.
    pub pad: i32,
    /// Room between neighbours.
    pub gap: i32,
    /// The same for a core.
    pub core_pad: i32,
    /// Room between the threads of a core.
    pub core_gap: i32,
}

impl Look {
    /// For a machine with that highest CPU number.
    ///
    /// `marks` is the number of levels that cut across the boxes, `mark` the longest text of a mark.
    pub fn new(dense: bool, last: u32, marks: usize, mark: &str) -> Look {
        let marks = marks as i32;
        if dense {
            return Look {
                dense,
                cell_width: 8,
                cell_height: 8,
                mark_height: 3,
                marks,
                number: 8,
                name: 11,
                small: 8,
                pad: 4,
                gap: 3,
                core_pad: 1,
                core_gap: 1,
            };
        }
        Look {
            dense,
            cell_width: (text::width(&last.to_string(), 11) + 8).max(text::width(mark, MARK) + 4).max(24),
            cell_height: 20,
            mark_height: MARK + 3,
            marks,
            number: 11,
            name: 12,
            small: 10,
            pad: 6,
            gap: 5,
            core_pad: 2,
            core_gap: 2,
        }
    }

    /// Font size of a box's own text.
    pub fn size(&self, unit: &Unit) -> i32 {
        if is_small(unit) { self.small } else { self.name }
    }

    /// Width and height of a CPU.
    pub fn cell(&self) -> (i32, i32) {
        (self.cell_width, self.cell_height + self.marks * self.mark_height)
    }

    /// Room between the edge of that box and what is in it.
    pub fn pad(&self, unit: &Unit) -> i32 {
        match unit {
            Unit { roles, .. } if roles.is_empty() => 0,
            unit if is_bare_core(unit) => self.core_pad,
            unit if is_small(unit) && self.dense => self.pad - 1,
            _ => self.pad,
        }
    }

    /// Room between what is in that box.
    pub fn gap(&self, unit: &Unit) -> i32 {
        match unit {
            Unit { roles, .. } if roles.is_empty() => self.gap * 2,
            unit if unit.is(Level::Core) => self.core_gap,
            unit if is_small(unit) && self.dense => self.gap - 1,
            _ => self.gap,
        }
    }
}

/// A core that is nothing else that needs a name.
pub fn is_bare_core(unit: &Unit) -> bool {
    unit.is(Level::Core) && unit.roles.iter().all(|role| role.level > Level::Node)
}

/// A box whose text is small: clusters, cores, sharers of a cache.
pub fn is_small(unit: &Unit) -> bool {
    is_bare_core(unit) || unit.roles.iter().all(|role| role.level >= Level::Cluster)
}

/// The level that a box is coloured as: a core, else the outermost of its levels.
pub fn colour(unit: &Unit) -> Option<Level> {
    match is_bare_core(unit) {
        true => Some(Level::Core),
        false => unit.roles.first().map(|role| role.level),
    }
}

/// Height of a strip without text.
pub const BARE_STRIP: i32 = 3;

/// Room below the names and ranges of a box.
pub const TEXT_GAP: i32 = 3;
/// Room at both ends of a strip's text.
pub const STRIP_PAD: i32 = 4;
/// Room below a strip.
pub const STRIP_GAP: i32 = 3;

/// Height of a strip with text of that size.
pub fn strip_height(size: i32) -> i32 {
    size + 4
}
