//! A machine as a drawing: nested boxes from packages and nodes down to CPUs, with a legend and NUMA distances, as SVG.
//!
//! Reads top-down: [`units`] says what is inside what, [`layout`] where it goes, this module puts the page together.

mod canvas;
mod distances;
mod kinds;
mod layout;
mod legend;
mod look;
mod ranges;
mod style;
mod text;
mod units;

use std::collections::BTreeSet;
use std::io::{self, Write};

use huddle_machine::{Arch, ClusterSource, CpuSet, Partition, Topology};

use crate::lists;
use canvas::{Canvas, Rect};
use distances::Distances;
use kinds::Kinds;
use layout::{Layout, Size};
use legend::{Columns, Legend};
use look::{BARE_STRIP, Look, MARK, STRIP_GAP, STRIP_PAD, TEXT_GAP, strip_height};
use units::{Item, MACHINE, Nesting, Unit};

/// CPUs up to which each is numbered.
const NUMBERED: usize = 1024;
/// Room around the page.
const MARGIN: i32 = 20;
/// Narrowest page, margins excepted.
const NARROWEST: i32 = 480;
/// Page width up to which the legend has the font size [`FONT`]; on wider pages it grows with them, so that it can be
/// read when the whole page is looked at.
const USUAL: i32 = 1400;
/// Font size of the legend, the distances and the facts.
const FONT: i32 = 11;
/// Bold letters are up to this much wider, in percent.
const BOLD: i32 = 115;
/// Room between the parts of the page.
const SPACE: i32 = 16;
/// Font size of shelves, the boxes for nodes of memory only and for offline CPUs.
const SHELF: i32 = 12;
/// Padding of a shelf.
const SHELF_PAD: i32 = 6;
/// Room between offline CPUs.
const OFFLINE_GAP: i32 = 5;
/// Width and height of a node of memory only.
const MEMORY_NODE: (i32, i32) = (130, 40);

/// Writes the drawing of a machine of that name.
///
/// # Errors
/// The output cannot be written.
pub fn write(out: impl Write, name: &str, topology: &Topology) -> io::Result<()> {
    let nesting = Nesting::new(topology);
    let kinds = Kinds::new(topology);
    let look = look(topology, &nesting);
    let layout = Layout::new(&nesting, look);
    let legend = Legend::new(topology, &nesting, &layout, &kinds);
    let distances = distances::values(&topology.nodes);
    let drawing = Drawing { name, topology, nesting: &nesting, kinds: &kinds, layout: &layout, legend, distances };
    let pages = (0..layout.sizes(MACHINE).len()).map(|size| drawing.page(size));
    match pages.min_by_key(Page::cost) {
        Some(page) => drawing.write(out, &page),
        None => Ok(()),
    }
}

fn look(topology: &Topology, nesting: &Nesting) -> Look {
    let dense = topology.online.len() > NUMBERED;
    let last = topology.online.union(&topology.offline).last().map_or(0, |cpu| cpu.0);
    let marks = nesting.cuts.iter().flat_map(|cut| &cut.sets).map(|(role, _)| mark_name(role));
    let longest = marks.max_by_key(|mark| text::width(mark, MARK)).unwrap_or_default();
    Look::new(dense, last, nesting.cuts.len(), &longest)
}

/// `n3` for node 3.
fn mark_name(role: &units::Role) -> String {
    let name = role.name().unwrap_or_default();
    let number = role.number.map(|number| number.to_string()).unwrap_or_else(|| "-".to_owned());
    format!("{}{number}", name.chars().next().unwrap_or(' '))
}

/// All that is drawn.
struct Drawing<'a> {
    name: &'a str,
    topology: &'a Topology,
    nesting: &'a Nesting,
    kinds: &'a Kinds,
    layout: &'a Layout,
    legend: Legend,
    distances: BTreeSet<u32>,
}

/// Where the parts of the page go. All pixels.
struct Page {
    /// Which size the machine has.
    size: usize,
    width: i32,
    height: i32,
    /// Font size of the legend.
    font: i32,
    /// The machine's name and its font size.
    title: (String, i32),
    facts: Vec<String>,
    machine: (i32, i32),
    memory: Option<Shelf>,
    offline: Option<Shelf>,
    legend: (i32, i32, Columns),
    distances: (i32, i32),
}

/// A box below the machine.
struct Shelf {
    rect: Rect,
    /// Heading and, for offline CPUs too many to be drawn, their list.
    lines: Vec<String>,
    columns: i32,
}

impl Page {
    /// How large a page of 16:10 must be to hold it, then how much of that it fills.
    fn cost(&self) -> (i64, i64) {
        let (width, height) = (i64::from(self.width) * 10, i64::from(self.height) * 16);
        (width.max(height), width + height)
    }
}

impl Drawing<'_> {
    /// The page on which the machine has that size.
    fn page(&self, size: usize) -> Page {
        let machine = &self.layout.sizes(MACHINE)[size];
        let inner = machine.width.max(NARROWEST);
        let font = FONT * inner.max(USUAL) / USUAL;
        let title = title(self.name, font, inner);
        let facts = text::broken(&facts(self.topology), font, inner);
        let mut y = MARGIN + title.1 + font / 2 + facts.len() as i32 * text::line(font) + SPACE;
        let at = (MARGIN, y);
        y += machine.height + SPACE;
        let memory = self.memory_shelf(inner, y);
        y += memory.as_ref().map_or(0, |shelf| shelf.rect.height + SPACE);
        let offline = self.offline_shelf(inner, y);
        y += offline.as_ref().map_or(0, |shelf| shelf.rect.height + SPACE);
        let (legend, distances, bottom) = self.foot(inner, font, y);
        Page {
            size,
            width: inner + 2 * MARGIN,
            height: bottom + MARGIN,
            font,
            title,
            facts,
            machine: at,
            memory,
            offline,
            legend,
            distances,
        }
    }

    /// Legend and distances side by side where they fit, else one below the other; and where they end.
    fn foot(&self, inner: i32, font: i32, y: i32) -> ((i32, i32, Columns), (i32, i32), i32) {
        let Some(distances) = Distances::new(&self.topology.nodes, &self.distances, font) else {
            let columns = self.legend.columns(inner, font);
            let bottom = y + columns.height;
            return ((MARGIN, y, columns), (MARGIN, y), bottom);
        };
        let (width, height) = distances.size();
        let beside = inner - width - 2 * SPACE;
        if beside >= NARROWEST * 3 / 5 * font / FONT {
            let columns = self.legend.columns(beside, font);
            let bottom = y + height.max(columns.height);
            return ((MARGIN, y, columns), (MARGIN + inner - width, y), bottom);
        }
        let columns = self.legend.columns(inner, font);
        let below = y + columns.height + SPACE;
        ((MARGIN, y, columns), (MARGIN, below), below + height)
    }

    fn memory_shelf(&self, inner: i32, y: i32) -> Option<Shelf> {
        let count = self.topology.nodes.iter().filter(|node| node.cpus.is_empty()).count() as i32;
        let rect = |width, height| Rect { x: MARGIN, y, width, height };
        (count > 0).then(|| {
            let columns = ((inner + SHELF_PAD) / (MEMORY_NODE.0 + SHELF_PAD)).clamp(1, count);
            let rows = (count + columns - 1) / columns;
            let (width, height) = (MEMORY_NODE.0 + SHELF_PAD, MEMORY_NODE.1 + SHELF_PAD);
            Shelf { rect: rect(columns * width - SHELF_PAD, rows * height - SHELF_PAD), lines: Vec::new(), columns }
        })
    }

    fn offline_shelf(&self, inner: i32, y: i32) -> Option<Shelf> {
        let offline = &self.topology.offline;
        if offline.is_empty() {
            return None;
        }
        let room = inner - 2 * SHELF_PAD;
        let (width, height) = self.offline_cell();
        let columns = ((room + OFFLINE_GAP) / (width + OFFLINE_GAP)).clamp(1, offline.len() as i32);
        let mut lines = vec!["offline".to_owned()];
        let content = match self.offline_is_listed() {
            true => {
                lines.extend(text::lines(&lists::with_commas(offline), "", SHELF, room));
                (room, 0)
            }
            false => {
                let rows = (offline.len() as i32 + columns - 1) / columns;
                (columns * (width + OFFLINE_GAP) - OFFLINE_GAP, rows * (height + OFFLINE_GAP) - OFFLINE_GAP + TEXT_GAP)
            }
        };
        let width = content.0.max(text::width("offline", SHELF)) + 2 * SHELF_PAD;
        let height = content.1 + lines.len() as i32 * text::line(SHELF) + 2 * SHELF_PAD;
        Some(Shelf { rect: Rect { x: MARGIN, y, width, height }, lines, columns })
    }

    /// Whether offline CPUs are too many to be drawn one by one.
    fn offline_is_listed(&self) -> bool {
        self.layout.look.dense || self.topology.offline.len() > NUMBERED / 4
    }

    /// Across and down.
    fn offline_cell(&self) -> (i32, i32) {
        let look = &self.layout.look;
        let last = self.topology.offline.last().map_or(0, |cpu| cpu.0);
        (look.cell_width.max(text::width(&last.to_string(), look.number) + 8), look.cell_height)
    }

    fn write(&self, out: impl Write, page: &Page) -> io::Result<()> {
        let title = format!("{}: {}", self.name, facts(self.topology));
        let mut canvas = Canvas::begin(out, page.width, page.height, &title, style::SHEET)?;
        let (name, size) = &page.title;
        canvas.text("title", *size, (MARGIN, MARGIN + size), name)?;
        for (index, line) in page.facts.iter().enumerate() {
            let y = MARGIN + size + page.font * 3 / 2 + index as i32 * text::line(page.font);
            canvas.text("facts", page.font, (MARGIN, y), line)?;
        }
        canvas.open(if self.layout.look.dense { "dense" } else { "numbered" })?;
        self.unit(&mut canvas, MACHINE, page.size, page.machine)?;
        canvas.close()?;
        if let Some(shelf) = &page.memory {
            self.memory(&mut canvas, shelf)?;
        }
        if let Some(shelf) = &page.offline {
            self.offline(&mut canvas, shelf)?;
        }
        let (x, y, columns) = &page.legend;
        self.legend.draw(&mut canvas, columns, (*x, *y))?;
        if let Some(distances) = Distances::new(&self.topology.nodes, &self.distances, page.font) {
            distances.draw(&mut canvas, page.distances)?;
        }
        canvas.end()
    }

    /// A box and all that is in it.
    fn unit<W: Write>(&self, canvas: &mut Canvas<W>, index: usize, size: usize, (x, y): (i32, i32)) -> io::Result<()> {
        let unit = &self.nesting.units[index];
        let size_of = &self.layout.sizes(index)[size];
        canvas.open("unit")?;
        if let Some(level) = look::colour(unit) {
            let rect = Rect { x, y, width: size_of.width, height: size_of.height };
            if !look::is_bare_core(unit) {
                canvas.title(&self.tip(unit))?;
            }
            canvas.rect(style::class(level), rect)?;
        }
        self.head(canvas, index, size_of, (x, y))?;
        for place in self.layout.places(self.nesting, index, size) {
            let at = (x + place.x, y + place.y);
            match place.item {
                Item::Unit(child) => self.unit(canvas, child, place.size, at)?,
                Item::Cpu(cpu) => self.cpu(canvas, cpu, at)?,
            }
        }
        canvas.close()
    }

    /// Names, ranges and strips of a box.
    fn head<W: Write>(&self, canvas: &mut Canvas<W>, index: usize, size: &Size, (x, y): (i32, i32)) -> io::Result<()> {
        let unit = &self.nesting.units[index];
        let head = &self.layout.heads[index];
        let font = self.layout.look.size(unit);
        let pad = self.layout.look.pad(unit);
        let (left, mut top) = (x + pad, y + pad);
        let texts = [("name", " ", &head.names, &size.lines.names), ("range", "", &head.ranges, &size.lines.ranges)];
        for (class, between, words, lines) in texts {
            let mut rest = words.as_slice();
            for &count in lines {
                let (line, others) = rest.split_at(count);
                rest = others;
                canvas.text(class, font, (left, top + font), &line.join(between))?;
                top += text::line(font);
            }
        }
        if top > y + pad {
            top += TEXT_GAP;
        }
        let width = size.width - 2 * pad;
        for strip in &head.strips {
            canvas.rect(style::STRIP, Rect { x: left, y: top, width, height: strip_height(font) })?;
            canvas.text("cache-name", font, (left + STRIP_PAD, top + font), strip)?;
            top += strip_height(font) + STRIP_GAP;
        }
        for _ in 0..head.bare_strips {
            canvas.rect(style::STRIP, Rect { x: left, y: top, width, height: BARE_STRIP })?;
            top += BARE_STRIP + STRIP_GAP;
        }
        Ok(())
    }

    fn cpu<W: Write>(&self, canvas: &mut Canvas<W>, cpu: huddle_machine::CpuId, (x, y): (i32, i32)) -> io::Result<()> {
        let look = &self.layout.look;
        let (width, height) = look.cell();
        let fill = style::kind(self.kinds.of[cpu.index()], self.kinds.kinds.len());
        canvas.filled(style::CPU, &fill, Rect { x, y, width, height })?;
        for (row, cut) in self.nesting.cuts.iter().enumerate() {
            let Some(set) = cut.of[cpu.index()] else { continue };
            let top = y + look.cell_height + row as i32 * look.mark_height;
            canvas.filled(style::MARK, style::mark(set), Rect { x, y: top, width, height: look.mark_height })?;
            if !look.dense {
                canvas.text("mark-name", MARK, (x + width / 2, top + MARK), &mark_name(&cut.sets[set].0))?;
            }
        }
        if !look.dense {
            let baseline = y + (look.cell_height + look.number) / 2 - 1;
            canvas.text("number", look.number, (x + width / 2, baseline), &cpu.to_string())?;
        }
        Ok(())
    }

    /// `package 0 = node 0, L3 32 MiB, CPUs 0-3`.
    fn tip(&self, unit: &Unit) -> String {
        let names: Vec<String> = unit.roles.iter().filter_map(|role| role.name()).collect();
        let cpus = CpuSet::from_cpus(self.topology.nr_cpus(), unit.cpus.iter().map(|cpu| cpu.index()));
        let list = format!("CPUs {}", lists::parts(&cpus).join(","));
        let named = (!names.is_empty()).then(|| names.join(" = "));
        named.into_iter().chain(unit.caches.iter().cloned()).chain([list]).collect::<Vec<_>>().join(", ")
    }

    fn memory<W: Write>(&self, canvas: &mut Canvas<W>, shelf: &Shelf) -> io::Result<()> {
        let (width, height) = MEMORY_NODE;
        let empty = self.topology.nodes.iter().filter(|node| node.cpus.is_empty());
        for (index, node) in empty.enumerate() {
            let index = index as i32;
            let x = shelf.rect.x + index % shelf.columns * (width + SHELF_PAD);
            let y = shelf.rect.y + index / shelf.columns * (height + SHELF_PAD);
            canvas.open("unit")?;
            canvas.rect(style::MEMORY, Rect { x, y, width, height })?;
            canvas.text("name", SHELF, (x + SHELF_PAD, y + SHELF_PAD + SHELF), &format!("node {}", node.id))?;
            canvas.close()?;
        }
        Ok(())
    }

    fn offline<W: Write>(&self, canvas: &mut Canvas<W>, shelf: &Shelf) -> io::Result<()> {
        let Rect { x, y, .. } = shelf.rect;
        canvas.open("unit")?;
        canvas.rect(style::SHELF, shelf.rect)?;
        let (left, mut top) = (x + SHELF_PAD, y + SHELF_PAD);
        for (index, line) in shelf.lines.iter().enumerate() {
            let class = if index == 0 { "name" } else { "range" };
            canvas.text(class, SHELF, (left, top + SHELF), line)?;
            top += text::line(SHELF);
        }
        if self.offline_is_listed() {
            return canvas.close();
        }
        let font = self.layout.look.number;
        let (width, height) = self.offline_cell();
        for (index, cpu) in self.topology.offline.iter().enumerate() {
            let (column, row) = (index as i32 % shelf.columns, index as i32 / shelf.columns);
            let x = left + column * (width + OFFLINE_GAP);
            let y = top + TEXT_GAP + row * (height + OFFLINE_GAP);
            canvas.rect(style::OFFLINE, Rect { x, y, width, height })?;
            canvas.text("number", font, (x + width / 2, y + (height + font) / 2 - 1), &cpu.to_string())?;
        }
        canvas.close()
    }
}

/// The machine's name and the largest font size in which it fits; cut where it does not fit in any.
fn title(name: &str, font: i32, room: i32) -> (String, i32) {
    let fits = |size: &i32| text::width(name, *size) * BOLD / 100 <= room;
    let size = [font * 9 / 5, font * 3 / 2, font * 6 / 5].into_iter().find(fits).unwrap_or(font * 6 / 5);
    (text::cut(name, size, room * 100 / BOLD), size)
}

/// What stands below the machine's name.
fn facts(topology: &Topology) -> String {
    let mut facts = vec![
        match topology.arch {
            Arch::Arm64 => "arm64",
            Arch::X86_64 => "x86-64",
            Arch::Riscv => "riscv",
            Arch::Other => "other architecture",
        }
        .to_owned(),
        counted(topology.online.len(), "CPU", "CPUs"),
    ];
    if !topology.offline.is_empty() {
        facts.push(format!("{} offline", topology.offline.len()));
    }
    if topology.hybrid {
        facts.push("hybrid".to_owned());
    }
    let cores = topology.smt.sets().len();
    if cores != topology.online.len() {
        facts.push(counted(cores, "core", "cores"));
    }
    let source = match topology.cluster_source {
        ClusterSource::Stated => " as stated",
        ClusterSource::L2 => " from the level-2 caches",
        ClusterSource::Smt => "",
    };
    let clusters = wider_than_core(topology, &topology.cluster, "cluster", "clusters");
    facts.push(if clusters.starts_with("no ") { clusters } else { clusters + source });
    facts.push(wider_than_core(topology, &topology.llc, "LLC", "LLCs"));
    if !topology.nodes.is_empty() {
        facts.push(counted(topology.nodes.len(), "node", "nodes"));
    }
    facts.push(counted(topology.package.sets().len(), "package", "packages"));
    for (level, one, many) in [(&topology.book, "book", "books"), (&topology.drawer, "drawer", "drawers")] {
        facts.extend(level.as_ref().map(|level| counted(level.sets().len(), one, many)));
    }
    facts.join(", ")
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// `24 clusters`, `8 clusters (2 wider than a core)`, `no cluster wider than a core`.
fn wider_than_core(topology: &Topology, partition: &Partition, one: &str, many: &str) -> String {
    let sets = partition.sets();
    let is_wide = |set: &&CpuSet| set.first().is_some_and(|cpu| !set.is_subset(topology.smt.set_of(cpu)));
    match sets.iter().filter(is_wide).count() {
        0 => format!("no {one} wider than a core"),
        wide if wide == sets.len() => counted(wide, one, many),
        wide => format!("{} ({wide} wider than a core)", counted(sets.len(), one, many)),
    }
}
