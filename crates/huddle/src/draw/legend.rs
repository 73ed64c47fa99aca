//! The legend: what colours, strips and marks mean, and what is the same for all cores.

use std::collections::BTreeSet;
use std::io::{self, Write};

use huddle_machine::{ClusterSource, Severity, Topology};

use super::canvas::{Canvas, Rect};
use super::kinds::{Kinds, private_caches};
use super::layout::Layout;
use super::look::colour;
use super::style;
use super::text;
use super::units::{Level, Nesting};
use crate::lists;

/// Narrowest column of the legend where there are several, swatch included, in font sizes.
const COLUMN: i32 = 25;
/// Most columns.
const COLUMNS: i32 = 4;
/// CPU lists are cut at this many font sizes.
const LIST: i32 = 75;
/// Sets that cut across boxes of which the CPUs are listed.
const MARKS: usize = 24;
/// Sets of caches that are listed when cores differ in them.
const LISTED: usize = 4;

/// What stands before an entry.
enum Swatch {
    /// A rectangle of a class.
    Class(&'static str),
    /// A rectangle of a class and a colour.
    Filled(&'static str, String),
    /// Nothing.
    None,
}

struct Entry {
    swatch: Swatch,
    text: String,
}

/// The legend of a drawing.
pub struct Legend {
    entries: Vec<Entry>,
}

/// The legend set in columns, in a font size.
pub struct Columns {
    font: i32,
    /// Pixels down.
    pub height: i32,
    /// Of each entry: left, top, lines.
    places: Vec<(i32, i32, Vec<String>)>,
}

impl Legend {
    /// All that the drawing of this machine needs to be understood.
    pub fn new(topology: &Topology, nesting: &Nesting, layout: &Layout, kinds: &Kinds) -> Legend {
        let mut legend = Legend { entries: Vec::new() };
        legend.boxes(topology, nesting);
        legend.cpus(topology, layout, kinds);
        legend.caches(topology, nesting, layout, kinds);
        legend.marks(nesting);
        legend.findings(topology);
        legend
    }

    fn add(&mut self, swatch: Swatch, text: impl Into<String>) {
        self.entries.push(Entry { swatch, text: text.into() });
    }

    fn boxes(&mut self, topology: &Topology, nesting: &Nesting) {
        let drawn: BTreeSet<Level> = nesting.units.iter().filter_map(colour).collect();
        for level in &drawn {
            let text = match level {
                Level::Drawer => "drawer",
                Level::Book => "book",
                Level::Package => "package",
                Level::Node => "NUMA node",
                Level::Llc => "LLC: CPUs that share the last-level cache",
                Level::Cluster => match topology.cluster_source {
                    ClusterSource::Stated => "cluster, as the firmware or the machine file states it",
                    ClusterSource::L2 => "cluster, taken from the shared level-2 cache",
                    ClusterSource::Smt => "cluster",
                },
                Level::Core => "core, its threads side by side",
                Level::Cache => "CPUs that share a cache",
            };
            self.add(Swatch::Class(style::class(*level)), text);
        }
        if topology.nodes.iter().any(|node| node.cpus.is_empty()) {
            self.add(Swatch::Class(style::MEMORY), "NUMA node of memory only");
        }
        if nesting.units.iter().any(|unit| !unit.is(Level::Core) && unit.roles.len() > 1) {
            self.add(Swatch::None, "A box with several names is all of them.");
        }
    }

    fn cpus(&mut self, topology: &Topology, layout: &Layout, kinds: &Kinds) {
        let threads = topology.smt.sets().iter().map(|core| core.len()).max().unwrap_or(1);
        let what = if threads > 1 { "CPU" } else { "CPU, a core of one thread" };
        let numbers = match layout.look.dense {
            true => "; its number is in the list of a box around it",
            false => ", with its number",
        };
        match kinds.differ() {
            false => self.add(Swatch::Filled(style::CPU, style::kind(0, 1)), format!("{what}{numbers}")),
            true => {
                for (index, kind) in kinds.kinds.iter().enumerate() {
                    let swatch = Swatch::Filled(style::CPU, style::kind(index, kinds.kinds.len()));
                    let cores = if kind.cores == 1 { "core" } else { "cores" };
                    self.add(swatch, format!("{} {cores}: {}", kind.cores, unbroken(&kind.text)));
                }
            }
        }
        if !topology.offline.is_empty() {
            self.add(Swatch::Class(style::OFFLINE), "offline CPU");
        }
    }

    fn caches(&mut self, topology: &Topology, nesting: &Nesting, layout: &Layout, kinds: &Kinds) {
        let heads = || nesting.units.iter().zip(&layout.heads);
        if heads().any(|(_, head)| !head.strips.is_empty()) {
            self.add(Swatch::Class(style::STRIP), "cache that the CPUs of the box share");
        }
        let bare: BTreeSet<&String> =
            heads().filter(|(_, head)| head.bare_strips > 0).flat_map(|(unit, _)| &unit.caches).collect();
        for text in bare {
            self.add(
                Swatch::Class(style::STRIP),
                format!("cache that the CPUs of a small box share: {}", unbroken(text)),
            );
        }
        // The kinds of a hybrid machine say what caches they have.
        let private = if topology.hybrid && kinds.differ() { Vec::new() } else { private_caches(topology) };
        let cores = topology.smt.sets().len();
        match private.as_slice() {
            [] => {}
            [(text, all)] if *all == cores => self.add(Swatch::None, format!("Each core has {}.", unbroken(text))),
            several => {
                for (text, some) in several.iter().take(LISTED) {
                    let have = if *some == 1 { "core has" } else { "cores have" };
                    self.add(Swatch::None, format!("{some} {have} {}.", unbroken(text)));
                }
                if several.len() > LISTED {
                    let rest: usize = several[LISTED..].iter().map(|(_, some)| some).sum();
                    self.add(Swatch::None, format!("{rest} more cores have other caches."));
                }
            }
        }
        if !nesting.hidden.is_empty() {
            let text = format!("Not drawn, since they cut across boxes: {} caches.", nesting.hidden.join(", "));
            self.add(Swatch::None, text);
        }
    }

    fn marks(&mut self, nesting: &Nesting) {
        for cut in &nesting.cuts {
            for (index, (role, cpus)) in cut.sets.iter().enumerate().take(MARKS) {
                let list = lists::parts(cpus).join(",");
                let text = format!("{}, which cuts across boxes: CPUs {list}", role.name().unwrap_or_default());
                self.add(Swatch::Filled(style::MARK, style::mark(index).to_owned()), text::cut(&text, 1, LIST));
            }
            if cut.sets.len() > MARKS {
                self.add(Swatch::None, format!("{} more that cut across boxes.", cut.sets.len() - MARKS));
            }
        }
    }

    fn findings(&mut self, topology: &Topology) {
        let warnings = topology.findings.iter().filter(|finding| finding.severity == Severity::Warning);
        let codes: BTreeSet<&str> = warnings.map(|finding| finding.code).collect();
        if !codes.is_empty() {
            let codes: Vec<&str> = codes.into_iter().collect();
            self.add(Swatch::None, format!("Doubtful (huddle topo says why): {}.", codes.join(", ")));
        }
    }

    /// Sets the legend in as many columns as `room` pixels allow.
    pub fn columns(&self, room: i32, font: i32) -> Columns {
        let gap = font * 2;
        let count = ((room + gap) / (COLUMN * font + gap)).clamp(1, COLUMNS);
        let natural = |entry: &Entry| entry.indent(font) + natural_width(&entry.text, font);
        let widest = self.entries.iter().map(natural).max().unwrap_or(0);
        let column = widest.min((room + gap) / count - gap);
        let broken: Vec<Vec<String>> =
            self.entries.iter().map(|entry| text::broken(&entry.text, font, column - entry.indent(font))).collect();
        let height = |lines: &Vec<String>| lines.len() as i32 * text::line(font) + font / 2;
        let heights: Vec<i32> = broken.iter().map(height).collect();
        let mut limit = heights.iter().sum::<i32>() / count;
        // An entry is never split, so that some columns end early and others may have to be longer.
        while text::wrap(&heights, 0, limit).len() as i32 > count {
            limit += text::line(font);
        }
        let (mut x, mut y) = (0, 0);
        let mut bottom = 0;
        let mut places = Vec::new();
        for lines in broken {
            let height = height(&lines);
            if y > 0 && y + height > limit {
                (x, y) = (x + column + gap, 0);
            }
            places.push((x, y, lines));
            y += height;
            bottom = bottom.max(y);
        }
        Columns { font, height: bottom, places }
    }

    /// Draws the legend with its upper left corner there.
    pub fn draw<W: Write>(&self, canvas: &mut Canvas<W>, columns: &Columns, (left, top): (i32, i32)) -> io::Result<()> {
        let font = columns.font;
        canvas.open("legend")?;
        for (entry, (x, y, lines)) in self.entries.iter().zip(&columns.places) {
            let (x, y) = (left + x, top + y);
            let rect = Rect { x, y, width: font * 2, height: font + 1 };
            match &entry.swatch {
                Swatch::Class(class) => canvas.rect(class, rect)?,
                Swatch::Filled(class, fill) => canvas.filled(class, fill, rect)?,
                Swatch::None => {}
            }
            for (index, line) in lines.iter().enumerate() {
                let baseline = y + font - 1 + index as i32 * text::line(font);
                canvas.text("entry", font, (x + entry.indent(font), baseline), line)?;
            }
        }
        canvas.close()
    }
}

impl Entry {
    /// Where the text begins.
    fn indent(&self, font: i32) -> i32 {
        match self.swatch {
            Swatch::None => 0,
            _ => font * 5 / 2,
        }
    }
}

/// The list with lines broken after commas only, so that a size stays with its unit.
fn unbroken(list: &str) -> String {
    list.replace(' ', "\u{a0}").replace(",\u{a0}", ", ")
}

/// Width of the text on one line, as [`text::broken`] counts it.
fn natural_width(text: &str, font: i32) -> i32 {
    text.split(' ').map(|word| text::width(word, font) + text::width(" ", font)).sum()
}
