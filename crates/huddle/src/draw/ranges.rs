//! CPU numbers as ranges, for machines with more CPUs than can be numbered one by one.
//!
//! Each CPU is covered by the list of exactly one box around it: the innermost boxes whose lists take about as much room
//! as the CPUs themselves.

use huddle_machine::{CpuId, CpuSet};

use super::look::Look;
use super::text;
use super::units::{Item, MACHINE, Nesting, Unit};
use crate::lists;

/// The CPU list of a box.
#[derive(Clone, Debug)]
pub struct Label {
    /// Its parts, each but the last with its comma.
    pub parts: Vec<String>,
    /// Pixels that each part takes with the longest numbers of the machine.
    pub widths: Vec<i32>,
}

/// CPUs of a box that is too large for one list if there is any way to give its parts their own.
const LARGE: usize = 256;

/// The list of each box that has one, by box; none at all unless the drawing is dense.
pub fn labels(nesting: &Nesting, look: &Look) -> Vec<Option<Label>> {
    let mut labels: Vec<Option<Label>> = vec![None; nesting.units.len()];
    if !look.dense {
        return labels;
    }
    let ranges: Vec<Label> = nesting.units.iter().map(|unit| label(unit, nesting, look)).collect();
    let mut fits = [vec![false; ranges.len()], vec![false; ranges.len()]];
    // Boxes come after the boxes around them.
    for unit in (0..ranges.len()).rev() {
        for (how, room) in [Room::Tight, Room::Ample].into_iter().enumerate() {
            let own = fit(&nesting.units[unit], &ranges[unit], look, room);
            fits[how][unit] = own || all_inside(&nesting.units[unit], &fits[how]);
        }
    }
    let mut open = vec![MACHINE];
    while let Some(unit) = open.pop() {
        let inside = &nesting.units[unit];
        let large = inside.cpus.len() > LARGE;
        if all_inside(inside, &fits[0]) || large && all_inside(inside, &fits[1]) || unit == MACHINE && !loose(inside) {
            open.extend(inside.items.iter().filter_map(|item| match item {
                Item::Unit(child) => Some(*child),
                Item::Cpu(_) => None,
            }));
        } else {
            labels[unit] = Some(ranges[unit].clone());
        }
    }
    labels
}

/// How much room a list may take.
#[derive(Clone, Copy)]
enum Room {
    /// One line across the box.
    Tight,
    /// Two lines in a box that the list may make about twice as wide.
    Ample,
}

/// Whether the box holds a CPU that is in no further box.
fn loose(unit: &Unit) -> bool {
    unit.items.iter().any(|item| matches!(item, Item::Cpu(_)))
}

fn all_inside(unit: &Unit, fits: &[bool]) -> bool {
    unit.items.iter().all(|item| matches!(item, Item::Unit(child) if fits[*child]))
}

fn fit(unit: &Unit, label: &Label, look: &Look, room: Room) -> bool {
    // A box of CPUs that is a little wider than high.
    let pitch = look.cell_width + look.gap;
    let side = (unit.cpus.len() as i32 * pitch * pitch * 8 / 5).isqrt();
    let widest = label.widths.iter().copied().max().unwrap_or(0);
    match room {
        Room::Tight => label.widths.iter().sum::<i32>() <= side,
        Room::Ample => widest <= side * 11 / 5 && text::wrap(&label.widths, 0, side.max(widest)).len() <= 2,
    }
}

fn label(unit: &Unit, nesting: &Nesting, look: &Look) -> Label {
    let last = nesting.units[MACHINE].cpus.last().map_or(0, |cpu| cpu.index());
    let cpus = CpuSet::from_cpus(last + 1, unit.cpus.iter().map(|cpu: &CpuId| cpu.index()));
    let parts = lists::with_commas(&cpus);
    let digits = last.to_string().len();
    let size = look.size(unit);
    let widths = parts
        .iter()
        .map(|part| {
            let numbers = part.split(|char: char| !char.is_ascii_digit()).filter(|number| !number.is_empty());
            let missing: usize = numbers.map(|number| digits.saturating_sub(number.len())).sum();
            text::width(&format!("{part}{}", "0".repeat(missing)), size)
        })
        .collect();
    Label { parts, widths }
}
