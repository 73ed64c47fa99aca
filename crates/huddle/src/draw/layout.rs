//! Where boxes go.
//!
//! Boxes that look alike (same levels, strips and contents) share one [`Shape`], for which a handful of sizes from wide
//! to tall are worked out once, inside out: a grid of equal children, or, where the children differ, grids of each sort
//! set in rows. The page then takes the size of the machine that suits it, and each box the size that this one is made of.
//! The work grows with the number of boxes and CPUs, not with its square.

use std::collections::{BTreeMap, BTreeSet};

use super::look::{BARE_STRIP, Look, STRIP_GAP, STRIP_PAD, TEXT_GAP, is_bare_core, is_small, strip_height};
use super::ranges::{self, Label};
use super::text;
use super::units::{Item, Level, Nesting, Role, Unit};

/// Sizes kept of one shape.
const SIZES: usize = 24;
/// No box is longer than this many times its other side, if it can be helped.
const LONGEST: i64 = 6;
/// Threads of a core that always stand in one row.
const THREADS_IN_A_ROW: usize = 4;

/// The text at the top of a box.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Names, each with ` =` before the next one.
    pub names: Vec<String>,
    /// One line per cache.
    pub strips: Vec<String>,
    /// Strips without text, where there is no room for it.
    pub bare_strips: usize,
    /// Parts of the CPU list, with their commas.
    pub ranges: Vec<String>,
}

/// How the text at the top of a box is broken into lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// Names on each line.
    pub names: Vec<usize>,
    /// Parts of the CPU list on each line.
    pub ranges: Vec<usize>,
}

/// What boxes of one shape have in common: levels, the text's widths, and what is inside.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    levels: Vec<Level>,
    unnumbered: bool,
    strips: Vec<String>,
    bare_strips: usize,
    ranges: Vec<i32>,
    inside: Vec<(Option<usize>, usize)>,
}

/// Boxes that look alike.
#[derive(Debug)]
struct Shape {
    /// Widths of names and of parts of the CPU list, wide enough for all boxes of the shape.
    names: Vec<i32>,
    ranges: Vec<i32>,
    sizes: Vec<Size>,
}

/// One size of a shape and how it comes about.
#[derive(Clone, Debug)]
pub struct Size {
    /// Pixels across.
    pub width: i32,
    /// Pixels down.
    pub height: i32,
    /// How the text is broken.
    pub lines: Lines,
    blocks: Vec<Block>,
}

/// A grid of children that look alike.
#[derive(Clone, Debug)]
struct Block {
    x: i32,
    y: i32,
    columns: usize,
    /// Across and down, gap included.
    pitch: (i32, i32),
    /// Which of the child's sizes.
    size: usize,
}

/// All shapes of a drawing and the shape of each box.
#[derive(Debug)]
pub struct Layout {
    /// Its measures.
    pub look: Look,
    /// The text at the top of each box.
    pub heads: Vec<Head>,
    shapes: Vec<Shape>,
    shape_of: Vec<usize>,
}

/// Where an item of a box is, relative to the box.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The item.
    pub item: Item,
    /// Which of its sizes; 0 for a CPU.
    pub size: usize,
    /// Pixels from the box's left edge.
    pub x: i32,
    /// Pixels from its upper edge.
    pub y: i32,
}

impl Layout {
    /// Lays a machine out.
    pub fn new(nesting: &Nesting, look: Look) -> Layout {
        let labels = ranges::labels(nesting, &look);
        let heads: Vec<Head> =
            nesting.units.iter().zip(&labels).map(|(unit, label)| head(unit, label.as_ref(), &look)).collect();
        let widest = WidestNumbers::new(nesting);
        let mut layout = Layout { look, heads, shapes: Vec::new(), shape_of: vec![0; nesting.units.len()] };
        let mut known: BTreeMap<Key, usize> = BTreeMap::new();
        // Boxes come after the boxes around them.
        for (index, unit) in nesting.units.iter().enumerate().rev() {
            let inside = layout.sorts(unit).into_iter().map(|(sort, items)| (sort, items.len())).collect();
            let head = &layout.heads[index];
            let label = labels[index].as_ref();
            let key = Key {
                levels: match is_bare_core(unit) {
                    true => vec![Level::Core],
                    false => unit.roles.iter().map(|role| role.level).collect(),
                },
                unnumbered: unit.roles.iter().any(|role| role.level == Level::Node && role.number.is_none()),
                strips: head.strips.clone(),
                bare_strips: head.bare_strips,
                ranges: label.map(|label| label.widths.clone()).unwrap_or_default(),
                inside,
            };
            let next = layout.shapes.len();
            let shape = *known.entry(key.clone()).or_insert(next);
            layout.shape_of[index] = shape;
            if shape == next {
                let names = widest.names(unit, head, layout.look.size(unit));
                let shape = layout.shape(unit, &key, names);
                layout.shapes.push(shape);
            }
        }
        layout
    }

    /// The sizes that the box can have.
    pub fn sizes(&self, unit: usize) -> &[Size] {
        &self.shapes[self.shape_of[unit]].sizes
    }

    /// Where the items of a box are when it has that size.
    pub fn places(&self, nesting: &Nesting, unit: usize, size: usize) -> Vec<Place> {
        let blocks = &self.sizes(unit)[size].blocks;
        let sorts = self.sorts(&nesting.units[unit]);
        let places = sorts.into_iter().zip(blocks).flat_map(|((_, items), block)| {
            items.into_iter().enumerate().map(move |(index, item)| Place {
                item,
                size: block.size,
                x: block.x + (index % block.columns) as i32 * block.pitch.0,
                y: block.y + (index / block.columns) as i32 * block.pitch.1,
            })
        });
        places.collect()
    }

    /// A box's items by shape, in the order in which the shapes come up; `None` is a CPU.
    fn sorts(&self, unit: &Unit) -> Vec<(Option<usize>, Vec<Item>)> {
        let mut sorts: Vec<(Option<usize>, Vec<Item>)> = Vec::new();
        let mut position = BTreeMap::new();
        for &item in &unit.items {
            let sort = match item {
                Item::Unit(child) => Some(self.shape_of[child]),
                Item::Cpu(_) => None,
            };
            let at = *position.entry(sort).or_insert_with(|| {
                sorts.push((sort, Vec::new()));
                sorts.len() - 1
            });
            sorts[at].1.push(item);
        }
        sorts
    }

    fn shape(&self, unit: &Unit, key: &Key, names: Vec<i32>) -> Shape {
        let mut shape = Shape { names, ranges: key.ranges.clone(), sizes: Vec::new() };
        let one_row = unit.is(Level::Core) && unit.items.len() <= THREADS_IN_A_ROW;
        let gap = self.look.gap(unit);
        let grids: Vec<Vec<Size>> =
            key.inside.iter().map(|&(sort, count)| self.grids(sort, count, gap, one_row)).collect();
        let contents = match grids.as_slice() {
            [one] => one.clone(),
            several => rows_of(several, gap),
        };
        let framed = contents.into_iter().flat_map(|content| self.framed(unit, key, &shape, content)).collect();
        shape.sizes = if unit.roles.is_empty() { best(framed) } else { thinned(framed) };
        shape
    }

    /// Grids of children that look alike, from one column to one row.
    fn grids(&self, sort: Option<usize>, count: usize, gap: i32, one_row: bool) -> Vec<Size> {
        let children: Vec<(i32, i32)> = match sort {
            Some(shape) => self.shapes[shape].sizes.iter().map(|size| (size.width, size.height)).collect(),
            None => vec![self.look.cell()],
        };
        let columns = match one_row {
            true => vec![count],
            false => good_columns(count),
        };
        let mut grids = Vec::new();
        for (size, (width, height)) in children.into_iter().enumerate() {
            let pitch = (width + gap, height + gap);
            grids.extend(columns.iter().map(|&columns| {
                let rows = count.div_ceil(columns);
                let (width, height) = (columns as i32 * pitch.0 - gap, rows as i32 * pitch.1 - gap);
                let block = Block { x: 0, y: 0, columns, pitch, size };
                Size { width, height, lines: Lines::default(), blocks: vec![block] }
            }));
        }
        best(grids)
    }

    /// A box around its content, with its text above: as narrow as the longest word allows, and wide enough for all
    /// names on one line.
    fn framed(&self, unit: &Unit, key: &Key, shape: &Shape, content: Size) -> Vec<Size> {
        let font = self.look.size(unit);
        let space = text::width(" ", font);
        let strips = key.strips.iter().map(|strip| text::width(strip, font) + 2 * STRIP_PAD);
        let widest = shape.names.iter().chain(&shape.ranges).copied().chain(strips).max().unwrap_or(0);
        let narrow = content.width.max(widest);
        let wide = narrow.max(shape.names.iter().map(|name| name + space).sum::<i32>());
        let widths = if wide > narrow { vec![narrow, wide] } else { vec![narrow] };
        let pad = self.look.pad(unit);
        let framed = widths.into_iter().map(|inner| {
            let lines =
                Lines { names: text::wrap(&shape.names, space, inner), ranges: text::wrap(&shape.ranges, 0, inner) };
            let top = pad + self.head_height(font, &lines, key.strips.len(), key.bare_strips);
            let left = pad + (inner - content.width) / 2;
            let blocks =
                content.blocks.iter().map(|block| Block { x: block.x + left, y: block.y + top, ..block.clone() });
            let (width, height) = (inner + 2 * pad, top + content.height + pad);
            Size { width, height, lines, blocks: blocks.collect() }
        });
        framed.collect()
    }

    /// Height of the text and strips at the top of a box, with the room below them.
    fn head_height(&self, size: i32, lines: &Lines, strips: usize, bare_strips: usize) -> i32 {
        let text = match lines.names.len() + lines.ranges.len() {
            0 => 0,
            lines => lines as i32 * text::line(size) + TEXT_GAP,
        };
        let strips = strips as i32 * (strip_height(size) + STRIP_GAP) + bare_strips as i32 * (BARE_STRIP + STRIP_GAP);
        text + strips
    }
}

/// The text at the top of a box.
fn head(unit: &Unit, label: Option<&Label>, look: &Look) -> Head {
    let mut head = Head { ranges: label.map(|label| label.parts.clone()).unwrap_or_default(), ..Head::default() };
    // That each core is a cluster or an LLC is said once, above the drawing.
    let named = unit.roles.iter().filter(|role| is_named(unit, role));
    let crowded = look.dense && (is_small(unit) || unit.cpus.len() < MANY);
    if !crowded {
        let names: Vec<String> = named.filter_map(|role| role.name()).collect();
        let last = names.len().saturating_sub(1);
        let with_equals = |(index, name)| if index < last { format!("{name} =") } else { name };
        head.names = names.into_iter().enumerate().map(with_equals).collect();
    }
    if !unit.is(Level::Core) {
        match crowded {
            true => head.bare_strips = unit.caches.len(),
            false => head.strips.clone_from(&unit.caches),
        }
    }
    head
}

/// Whether that one of a box's names is written.
fn is_named(unit: &Unit, role: &Role) -> bool {
    match role.level {
        Level::Drawer | Level::Book | Level::Package | Level::Node => true,
        Level::Llc | Level::Cluster => !unit.is(Level::Core),
        Level::Core => !is_bare_core(unit),
        Level::Cache => false,
    }
}

/// CPUs of a box that has a name in a dense drawing.
const MANY: usize = 16;

/// The digits that names of each level need, so that boxes of one shape are equally wide.
struct WidestNumbers(BTreeMap<Level, u32>);

impl WidestNumbers {
    fn new(nesting: &Nesting) -> WidestNumbers {
        let mut widest = BTreeMap::new();
        for role in nesting.units.iter().flat_map(|unit| &unit.roles) {
            let number = widest.entry(role.level).or_insert(0);
            *number = role.number.unwrap_or(0).max(*number);
        }
        WidestNumbers(widest)
    }

    /// Widths of a box's names if their numbers were the widest ones.
    fn names(&self, unit: &Unit, head: &Head, size: i32) -> Vec<i32> {
        let named = unit.roles.iter().filter(|role| is_named(unit, role));
        let widths = head.names.iter().zip(named).map(|(name, role)| {
            let digits = |number: u32| number.to_string().len();
            let most = self.0.get(&role.level).map_or(1, |&number| digits(number));
            let missing = role.number.map_or(0, |number| most.saturating_sub(digits(number)));
            text::width(&format!("{name}{}", "0".repeat(missing)), size)
        });
        widths.collect()
    }
}

/// Numbers of columns in which `count` equal boxes look well: full rows, or a last row at least half full where no
/// number close by gives full ones.
fn good_columns(count: usize) -> Vec<usize> {
    let full = |columns: usize| count.is_multiple_of(columns);
    let good = |columns: &usize| {
        let columns = *columns;
        let empty = count.div_ceil(columns) * columns - count;
        let close = columns * 4 / 5..=columns * 5 / 4;
        full(columns) || empty * 2 < columns && !close.filter(|other| *other > 0).any(full)
    };
    // As many columns as some number of rows needs.
    let mut columns: Vec<usize> = Vec::new();
    let mut next = count;
    while next > 0 {
        let rows = count.div_ceil(next);
        columns.push(count.div_ceil(rows));
        // One column less for the rows there are is one row more.
        next = count.div_ceil(rows) - 1;
    }
    columns.retain(good);
    columns
}

/// Grids of several sorts set in rows, from narrow to wide, and all in one row, from low to high.
fn rows_of(grids: &[Vec<Size>], gap: i32) -> Vec<Size> {
    let narrowest = |grids: &Vec<Size>| grids.iter().map(|grid| grid.width).min().unwrap_or(0);
    let widest = |grids: &Vec<Size>| grids.iter().map(|grid| grid.width).max().unwrap_or(0);
    let least = grids.iter().map(narrowest).max().unwrap_or(0);
    let most: i32 = grids.iter().map(|grids| widest(grids) + gap).sum();
    let rooms = std::iter::successors(Some(least), |room| (*room < most).then_some(room + room / 8 + 1));
    let mut out: Vec<Size> = rooms.map(|room| row_after_row(grids, gap, room)).collect();
    let heights: BTreeSet<i32> = grids.iter().flatten().map(|grid| grid.height).collect();
    let every = heights.len().div_ceil(SIZES);
    out.extend(heights.into_iter().step_by(every.max(1)).map(|height| one_row(grids, gap, height)));
    best(out)
}

/// Each sort as the lowest grid that fits, one after the other, in rows of `room` pixels.
fn row_after_row(grids: &[Vec<Size>], gap: i32, room: i32) -> Size {
    let chosen = grids.iter().filter_map(|grids| {
        let fitting = grids.iter().filter(|grid| grid.width <= room).min_by_key(|grid| (grid.height, grid.width));
        fitting.or_else(|| grids.iter().min_by_key(|grid| grid.width))
    });
    set_in_rows(chosen, gap, room)
}

/// Each sort as the narrowest grid of at most `height` pixels, side by side.
fn one_row(grids: &[Vec<Size>], gap: i32, height: i32) -> Size {
    let chosen = grids.iter().filter_map(|grids| {
        let fitting = grids.iter().filter(|grid| grid.height <= height).min_by_key(|grid| (grid.width, grid.height));
        fitting.or_else(|| grids.iter().min_by_key(|grid| grid.height))
    });
    set_in_rows(chosen, gap, i32::MAX)
}

fn set_in_rows<'a>(grids: impl Iterator<Item = &'a Size>, gap: i32, room: i32) -> Size {
    let mut out = Size { width: 0, height: 0, lines: Lines::default(), blocks: Vec::new() };
    let (mut x, mut y, mut row) = (0, 0, 0);
    for grid in grids {
        let Some(block) = grid.blocks.first() else { continue };
        if x > 0 && x + grid.width > room {
            (x, y, row) = (0, y + row + gap, 0);
        }
        out.blocks.push(Block { x, y, ..block.clone() });
        out.width = out.width.max(x + grid.width);
        row = row.max(grid.height);
        out.height = out.height.max(y + row);
        x += grid.width + gap;
    }
    out
}

/// The sizes of which no other is both narrower and lower, from the tallest to the widest.
fn best(mut sizes: Vec<Size>) -> Vec<Size> {
    sizes.sort_by_key(|size| (size.width, size.height));
    let mut kept: Vec<Size> = Vec::new();
    for size in sizes {
        if kept.last().is_none_or(|last| size.height < last.height) {
            kept.push(size);
        }
    }
    kept
}

/// The best sizes, [`SIZES`] at most, spread evenly over their proportions.
fn thinned(sizes: Vec<Size>) -> Vec<Size> {
    let mut kept = best(sizes);
    let sides = |size: &Size| (i64::from(size.width), i64::from(size.height));
    let handy = |size: &Size| {
        let (width, height) = sides(size);
        width <= LONGEST * height && height <= LONGEST * width
    };
    if kept.iter().any(handy) {
        kept.retain(handy);
    }
    // How much wider for its height than the one before a size must be, in percent.
    let mut step = 105;
    while kept.len() > SIZES {
        let mut last = None;
        kept.retain(|size| {
            let (width, height) = sides(size);
            let wider = last.is_none_or(|(before, high)| width * high * 100 >= before * height * step);
            if wider {
                last = Some((width, height));
            }
            wider
        });
        step += 5;
    }
    kept
}
