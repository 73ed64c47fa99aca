//! The table of NUMA distances.

use std::collections::BTreeSet;
use std::io::{self, Write};

use huddle_machine::Node;

use super::canvas::{Canvas, Rect};
use super::text;

/// Nodes up to which each distance is written out; above, cells are only coloured.
const WRITTEN: usize = 16;
/// Nodes up to which there is a table.
const DRAWN: usize = 64;
/// Distances that the scale of a coloured table lists.
const SCALE: usize = 12;
/// Edge of the table that is not exceeded without need, in font sizes of the legend.
const EDGE: i32 = 18;
/// Smallest font size of a written distance.
const SMALLEST: i32 = 11;
/// Bold letters are up to this much wider, in percent.
const BOLD: i32 = 115;
const HEADING: &str = "NUMA distances";

/// The table, laid out for a font size.
pub struct Distances<'a> {
    nodes: &'a [Node],
    font: i32,
    /// Width of the row heads.
    head: i32,
    /// Across and down.
    cell: (i32, i32),
    values: &'a BTreeSet<u32>,
}

/// Each distance once, ascending.
pub fn values(nodes: &[Node]) -> BTreeSet<u32> {
    nodes.iter().flat_map(|node| &node.distance).copied().collect()
}

impl<'a> Distances<'a> {
    /// The table of at least two nodes, else none; `values` are their distances. `font` is the legend's; the numbers of
    /// many nodes are smaller, so that the table stays small.
    pub fn new(nodes: &'a [Node], values: &'a BTreeSet<u32>, font: i32) -> Option<Distances<'a>> {
        if nodes.len() < 2 {
            return None;
        }
        let count = nodes.len() as i32;
        let edge = (font * EDGE / count).max(3);
        let font = if nodes.len() <= WRITTEN { font.min(edge * 3 / 5).max(font.min(SMALLEST)) } else { font };
        let longest = |numbers: &mut dyn Iterator<Item = u32>| {
            numbers.map(|number| text::width(&number.to_string(), font)).max().unwrap_or(0)
        };
        let ids = longest(&mut nodes.iter().map(|node| node.id));
        let cell = match nodes.len() <= WRITTEN {
            true => (ids.max(longest(&mut values.iter().copied())) + font * 2 / 3, font + font * 2 / 3),
            false => (edge, edge),
        };
        Some(Distances { nodes, font, head: ids + font * 2 / 3, cell, values })
    }

    /// Pixels across and down.
    pub fn size(&self) -> (i32, i32) {
        let (width, height) = self.table();
        let width = width.max(text::width(HEADING, self.font) * BOLD / 100);
        match self.nodes.len() {
            0..=WRITTEN => (width, self.heading() + height),
            _ => {
                let scale = self.scale();
                let widest = scale.iter().map(|text| text::width(text, self.font)).max().unwrap_or(0);
                let high = scale.len() as i32 * text::line(self.font);
                (width + self.font + self.swatch() + widest, self.heading() + height.max(high))
            }
        }
    }

    /// Pixels of the table alone, row and column heads included.
    fn table(&self) -> (i32, i32) {
        let count = self.nodes.len() as i32;
        match self.nodes.len() {
            nodes if nodes <= WRITTEN => (self.head + count * self.cell.0, (count + 1) * self.cell.1),
            nodes if nodes <= DRAWN => (self.head + count * self.cell.0, count * self.cell.1),
            _ => (0, 0),
        }
    }

    /// Height of the heading.
    fn heading(&self) -> i32 {
        self.font * 2
    }

    /// Width of a colour of the scale and the room behind it.
    fn swatch(&self) -> i32 {
        self.font * 2
    }

    /// Draws the table with its upper left corner there.
    pub fn draw<W: Write>(&self, canvas: &mut Canvas<W>, (x, y): (i32, i32)) -> io::Result<()> {
        canvas.open("distances")?;
        canvas.text("heading", self.font, (x, y + self.font), HEADING)?;
        let top = y + self.heading();
        match self.nodes.len() {
            0..=WRITTEN => self.draw_numbers(canvas, x, top)?,
            nodes => {
                if nodes <= DRAWN {
                    self.draw_colours(canvas, x, top)?;
                }
                let beside = self.table().0.max(text::width(HEADING, self.font) * BOLD / 100);
                self.draw_scale(canvas, x + beside + self.font, top)?;
            }
        }
        canvas.close()
    }

    fn draw_numbers<W: Write>(&self, canvas: &mut Canvas<W>, x: i32, y: i32) -> io::Result<()> {
        let (width, height) = self.cell;
        let baseline = |row: usize| y + row as i32 * height + (height + self.font) / 2 - 1;
        for (column, node) in self.nodes.iter().enumerate() {
            let centre = x + self.head + column as i32 * width + width / 2;
            canvas.text("node-id", self.font, (centre, baseline(0)), &node.id.to_string())?;
        }
        for (row, node) in self.nodes.iter().enumerate() {
            canvas.text("node-id", self.font, (x + self.head / 2, baseline(row + 1)), &node.id.to_string())?;
            for (column, &value) in node.distance.iter().enumerate() {
                let left = x + self.head + column as i32 * width;
                let (fill, class) = self.shade(value);
                canvas.filled("distance", &fill, Rect { x: left, y: y + (row as i32 + 1) * height, width, height })?;
                canvas.text(class, self.font, (left + width / 2, baseline(row + 1)), &value.to_string())?;
            }
        }
        Ok(())
    }

    fn draw_colours<W: Write>(&self, canvas: &mut Canvas<W>, x: i32, y: i32) -> io::Result<()> {
        let (width, height) = self.cell;
        for (row, node) in self.nodes.iter().enumerate() {
            let top = y + row as i32 * height;
            // A line of text is higher than a row.
            if row as i32 % (text::line(self.font) / height + 1) == 0 {
                canvas.text(
                    "node-id",
                    self.font,
                    (x + self.head / 2, top + (height + self.font) / 2),
                    &node.id.to_string(),
                )?;
            }
            // Equal neighbours are one rectangle.
            let mut column = 0;
            for run in node.distance.chunk_by(|a, b| a == b) {
                let left = x + self.head + column * width;
                let rect = Rect { x: left, y: top, width: run.len() as i32 * width, height };
                canvas.filled("tile", &self.shade(run[0]).0, rect)?;
                column += run.len() as i32;
            }
        }
        Ok(())
    }

    fn draw_scale<W: Write>(&self, canvas: &mut Canvas<W>, x: i32, y: i32) -> io::Result<()> {
        for (row, line) in self.scale().iter().enumerate() {
            let top = y + row as i32 * text::line(self.font);
            if let Some(&value) = self.values.iter().nth(row).filter(|_| row < SCALE) {
                let rect = Rect { x, y: top, width: self.font * 3 / 2, height: self.font };
                canvas.filled("distance", &self.shade(value).0, rect)?;
            }
            canvas.text("entry", self.font, (x + self.swatch(), top + self.font - 1), line)?;
        }
        Ok(())
    }

    /// The distances beside their colours, and how many are not listed.
    fn scale(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.values.iter().take(SCALE).map(u32::to_string).collect();
        if self.values.len() > SCALE {
            let last = self.values.last().copied().unwrap_or(0);
            lines.push(format!("{} more, up to {last}", self.values.len() - SCALE));
        }
        lines
    }

    /// White for the nearest distance, dark blue for the farthest, and the class of a number on it.
    fn shade(&self, value: u32) -> (String, &'static str) {
        let (Some(&least), Some(&most)) = (self.values.first(), self.values.last()) else {
            return ("#ffffff".to_owned(), "on-light");
        };
        let part = i64::from(value - least) * 1000 / i64::from((most - least).max(1));
        let mix = |from: i64, to: i64| from + (to - from) * part / 1000;
        let fill = format!("#{:02x}{:02x}{:02x}", mix(0xff, 0x2b), mix(0xff, 0x5c), mix(0xff, 0x96));
        (fill, if part > 550 { "on-dark" } else { "on-light" })
    }
}
