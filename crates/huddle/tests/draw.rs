//! `huddle topo --svg`: what is in the drawing, read back with an XML parser.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use huddle_machine::{CpuSet, Topology, builtin_names, load_topology};
use roxmltree::{Document, Node};

fn huddle(args: &[&str]) -> Output {
    Command::cargo_bin("huddle").unwrap().arg("topo").args(args).output().unwrap()
}

/// The drawing of a machine, which must succeed.
fn svg(source: &str) -> String {
    let output = huddle(&[source, "--svg", "-"]);
    assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[derive(Clone, Copy, Debug)]
struct Rect {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Rect {
    fn holds(&self, other: &Rect) -> bool {
        self.left <= other.left && self.top <= other.top && self.right >= other.right && self.bottom >= other.bottom
    }

    fn overlaps(&self, other: &Rect) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    fn around(rects: impl Iterator<Item = Rect>) -> Option<Rect> {
        rects.reduce(|a, b| Rect {
            left: a.left.min(b.left),
            top: a.top.min(b.top),
            right: a.right.max(b.right),
            bottom: a.bottom.max(b.bottom),
        })
    }
}

fn number(node: Node, name: &str) -> f64 {
    node.attribute(name).unwrap_or("0").parse().unwrap()
}

fn class<'a>(node: Node<'a, '_>) -> &'a str {
    node.attribute("class").unwrap_or("")
}

/// Where a rectangle is, or a text, as wide as it is in DejaVu Sans.
fn extent(node: Node) -> Rect {
    let (x, y) = (number(node, "x"), number(node, "y"));
    if node.has_tag_name("rect") {
        return Rect { left: x, top: y, right: x + number(node, "width"), bottom: y + number(node, "height") };
    }
    let size = number(node, "font-size");
    let advance = |char: char| match char {
        '0'..='9' => 0.636,
        ',' | '.' | ' ' | '\u{a0}' | 'i' | 'l' => 0.32,
        '-' => 0.361,
        '=' | '+' => 0.838,
        'm' | '…' => 1.0,
        'A'..='Z' => 0.77,
        _ => 0.635,
    };
    let bold = if ["title", "heading"].contains(&class(node)) { 1.1 } else { 1.0 };
    let width: f64 = node.text().unwrap_or("").chars().map(advance).sum::<f64>() * size * bold;
    let centred = ["number", "mark-name", "node-id", "on-light", "on-dark"].contains(&class(node));
    let left = if centred { x - width / 2.0 } else { x };
    Rect { left, top: y - 0.76 * size, right: left + width, bottom: y + 0.24 * size }
}

/// The rectangle of a box, `None` for the group that holds the machine.
fn own_rect<'a, 'input>(unit: Node<'a, 'input>) -> Option<Node<'a, 'input>> {
    const BOXES: [&str; 10] =
        ["drawer", "book", "package", "node", "llc", "cluster", "core", "cache", "shelf", "memory"];
    unit.children().find(|child| child.has_tag_name("rect") && BOXES.contains(&class(*child)))
}

fn is_unit(node: &Node) -> bool {
    node.has_tag_name("g") && class(*node) == "unit"
}

/// Each box is inside the one around it, neighbours do not overlap, and text stays in its box.
fn check_boxes(unit: Node, around: &Rect, name: &str) {
    let own = own_rect(unit);
    let inside = own.map_or(*around, extent);
    assert!(around.holds(&inside), "{name}: {inside:?} is not inside {around:?}");
    let solid = unit.children().filter(|child| match child.tag_name().name() {
        "g" => true,
        "rect" => Some(*child) != own && class(*child) != "mark",
        _ => false,
    });
    let solid: Vec<Rect> = solid.map(|child| extent(own_rect(child).unwrap_or(child))).collect();
    for (index, a) in solid.iter().enumerate() {
        assert!(inside.holds(a), "{name}: {a:?} is not inside {inside:?}");
        for b in &solid[index + 1..] {
            assert!(!a.overlaps(b), "{name}: {a:?} and {b:?} overlap");
        }
    }
    for text in unit.children().filter(|child| child.has_tag_name("text")) {
        let extent = extent(text);
        let words = text.text().unwrap_or("");
        assert!(inside.holds(&extent), "{name}: `{words}` at {extent:?} is not inside {inside:?}");
        match class(text) {
            // Inside a CPU or a strip.
            "number" | "mark-name" | "cache-name" => {
                assert!(solid.iter().any(|rect| rect.holds(&extent)), "{name}: `{words}` is in no rectangle");
            }
            _ => assert!(!solid.iter().any(|rect| rect.overlaps(&extent)), "{name}: `{words}` is covered"),
        }
    }
    unit.children().filter(is_unit).for_each(|child| check_boxes(child, &inside, name));
}

/// The parts of the page are inside it and do not overlap.
fn check_page(document: &Document, name: &str) {
    let root = document.root_element();
    let page = Rect { left: 0.0, top: 0.0, right: number(root, "width"), bottom: number(root, "height") };
    let drawn = |node: &Node| node.has_tag_name("rect") || node.has_tag_name("text");
    let parts: Vec<Rect> = root
        .children()
        .filter(|part| part.is_element() && class(*part) != "page")
        .filter_map(|part| Rect::around(part.descendants().filter(drawn).map(extent)))
        .collect();
    for (index, part) in parts.iter().enumerate() {
        assert!(page.holds(part), "{name}: {part:?} is not on the page {page:?}");
        for other in &parts[index + 1..] {
            assert!(!part.overlaps(other), "{name}: {part:?} and {other:?} overlap");
        }
    }
    for unit in document.descendants().filter(|node| is_unit(node) && !node.parent().is_some_and(|up| is_unit(&up))) {
        check_boxes(unit, &page, name);
    }
}

/// `0-3,8` and `0,2,…,86`.
fn expand(list: &str) -> Vec<u32> {
    let mut cpus: Vec<u32> = Vec::new();
    let mut rest = false;
    for part in list.split(',').filter(|part| !part.is_empty()) {
        match part.split_once('-') {
            _ if part == "…" => rest = true,
            Some((from, to)) => cpus.extend(from.parse::<u32>().unwrap()..=to.parse().unwrap()),
            None if rest => {
                let [.., first, second] = cpus[..] else { panic!("{list}") };
                let last: u32 = part.parse().unwrap();
                cpus.extend((second..=last).step_by((second - first) as usize).skip(1));
                assert_eq!(cpus.last(), Some(&last), "{list}");
                rest = false;
            }
            None => cpus.push(part.parse().unwrap()),
        }
    }
    cpus
}

/// The CPUs numbered inside a part of the drawing, in ranges or one by one, ascending.
fn cpus(part: Node) -> Vec<u32> {
    let mut cpus: Vec<u32> = Vec::new();
    // A list that is broken into lines has a comma at the end of each but the last.
    let mut list = String::new();
    for text in part.descendants().filter(|node| node.has_tag_name("text")) {
        let words = text.text().unwrap_or("");
        match class(text) {
            "number" => cpus.push(words.parse().unwrap()),
            "range" if words.ends_with(',') => list += words,
            "range" => cpus.extend(expand(&(std::mem::take(&mut list) + words))),
            _ => {}
        }
    }
    assert_eq!(list, "");
    cpus.sort_unstable();
    cpus
}

fn ids(set: &CpuSet) -> Vec<u32> {
    set.iter().map(|cpu| cpu.0).collect()
}

/// Each CPU is there once, and each package, node, LLC, cluster and core is a box of its own or one with more names.
fn check_content(document: &Document, topology: &Topology, name: &str) {
    assert_eq!(cpus(document.root()), ids(&topology.online.union(&topology.offline)), "{name}");
    let cells = document.descendants().filter(|node| class(*node) == "cpu" && is_unit(&node.parent().unwrap()));
    assert_eq!(cells.count(), topology.online.len(), "{name}");
    let dense = document.descendants().any(|node| class(node) == "dense");
    if dense || document.descendants().any(|node| class(node) == "mark") {
        return;
    }
    let boxes: BTreeSet<Vec<u32>> = document.descendants().filter(is_unit).map(cpus).collect();
    let partitions = [&topology.package, &topology.smt, &topology.cluster, &topology.llc];
    let wide = partitions.into_iter().flat_map(|partition| partition.sets()).filter(|set| set.len() > 1);
    let nodes = topology.nodes.iter().map(|node| &node.cpus).filter(|cpus| !cpus.is_empty());
    for set in wide.chain(topology.package.sets()).chain(nodes) {
        assert!(boxes.contains(&ids(set)), "{name}: no box for {set}");
    }
}

fn check(source: &str) {
    let drawing = svg(source);
    let document = Document::parse(&drawing).unwrap_or_else(|error| panic!("{source}: {error}"));
    check_page(&document, source);
    check_content(&document, &load_topology(Some(source)).unwrap().1, source);
}

#[test]
fn every_built_in_machine_is_drawn_whole_and_without_overlaps() {
    builtin_names().into_iter().for_each(check);
}

#[test]
fn every_snapshot_is_drawn_whole_and_without_overlaps() {
    let shared = std::env::var_os("HUDDLE_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")), PathBuf::from);
    let Ok(folder) = std::fs::read_dir(shared.join("topo-snapshots")) else {
        println!("no snapshots in {}: nothing tested (set HUDDLE_SHARED)", shared.display());
        return;
    };
    let sources = folder.map(|entry| entry.unwrap().path().to_str().unwrap().to_owned());
    let snapshots: Vec<String> =
        sources.filter(|source| source.contains(".tar.") || source.ends_with(".xml")).collect();
    assert!(!snapshots.is_empty());
    snapshots.iter().for_each(|source| check(source));
}

/// A built-in machine with more of something: its file with some lines replaced.
fn enlarged(machine: &str, lines: &[(&str, &str)]) -> (tempfile::TempDir, String) {
    let file = format!("{}/../../machines/{machine}.toml", env!("CARGO_MANIFEST_DIR"));
    let mut text = std::fs::read_to_string(file).unwrap();
    for (line, by) in lines {
        assert_eq!(text.matches(line).count(), 1, "{machine}: {line}");
        text = text.replace(line, by);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large.toml");
    std::fs::write(&file, text).unwrap();
    (folder, file.to_str().unwrap().to_owned())
}

/// The lists of CPUs in a drawing, lines joined.
fn lists(document: &Document) -> Vec<String> {
    let texts = document.descendants().filter(|node| class(*node) == "range").filter_map(|node| node.text());
    let mut lists = vec![String::new()];
    for text in texts {
        let list = lists.last_mut().unwrap();
        *list += text;
        if !text.ends_with(',') {
            lists.push(String::new());
        }
    }
    assert_eq!(lists.pop().as_deref(), Some(""));
    lists
}

#[test]
fn kunpeng_of_576_cpus_numbers_each_and_one_of_8192_lists_them_by_cluster() {
    for (clusters, numbered, listed) in [("36", 576, 0), ("512", 0, 2048)] {
        let by = format!("clusters_per_llc = {clusters}\n");
        let (_folder, source) = enlarged("kunpeng920", &[("clusters_per_llc = 6\n", &by)]);
        check(&source);
        let drawing = svg(&source);
        let document = Document::parse(&drawing).unwrap();
        let numbers = document.descendants().filter(|node| class(*node) == "number");
        assert_eq!((numbers.count(), lists(&document).len()), (numbered, listed));
        assert!(drawing.len() < 3 << 20, "{} bytes", drawing.len());
    }
}

#[test]
fn xeon_of_4096_cpus_lists_the_threads_of_each_core() {
    let (_folder, source) = enlarged("xeon-2s44c88t", &[("clusters_per_llc = 22\n", "clusters_per_llc = 1024\n")]);
    check(&source);
    let drawing = svg(&source);
    let document = Document::parse(&drawing).unwrap();
    let lists = lists(&document);
    assert_eq!((lists.len(), lists[0].as_str(), lists[1].as_str()), (2048, "0,2048", "2,2050"));
}

#[test]
fn kunpeng_of_8192_cpus_numbered_across_its_nodes_lists_progressions() {
    let numbering = "threads_per_core = 1\nnumbering = [\"cluster\", \"core\", \"package\", \"node\"]\n";
    let (_folder, source) = enlarged(
        "kunpeng920",
        &[
            ("clusters_per_llc = 6\n", "clusters_per_llc = 256\n"),
            ("cores_per_cluster = 4\n", "cores_per_cluster = 8\n"),
            ("threads_per_core = 1\n", numbering),
        ],
    );
    check(&source);
    let drawing = svg(&source);
    let document = Document::parse(&drawing).unwrap();
    let lists = lists(&document);
    assert_eq!((lists.len(), lists[0].as_str(), lists[1].as_str()), (1024, "0,4,…,28", "32,36,…,60"));
}

#[test]
fn kunpeng_boxes_hold_what_they_are_called() {
    let drawing = svg("kunpeng920");
    let document = Document::parse(&drawing).unwrap();
    let named = |name: &str| {
        let text = document.descendants().find(|node| class(*node) == "name" && node.text() == Some(name));
        text.unwrap_or_else(|| panic!("no {name}")).parent().unwrap()
    };
    assert_eq!(cpus(named("cluster 7")), [28, 29, 30, 31]);
    assert_eq!(cpus(named("node 3 = LLC 3")), (72..96).collect::<Vec<u32>>());
    assert_eq!(cpus(named("package 0")), (0..48).collect::<Vec<u32>>());
    let strip = named("node 3 = LLC 3").children().find(|node| class(*node) == "cache-name").unwrap();
    assert_eq!(strip.text(), Some("L3 22.5 MiB"));
    let texts: Vec<&str> =
        document.descendants().filter(|node| node.has_tag_name("text")).filter_map(|node| node.text()).collect();
    for part in ["kunpeng920", "arm64, 96 CPUs, 24 clusters as stated, 4 LLCs, 4 nodes, 2 packages", "NUMA distances"] {
        assert!(texts.contains(&part), "{texts:?}");
    }
    let distances: Vec<&str> =
        document.descendants().filter(|node| class(*node).starts_with("on-")).filter_map(|node| node.text()).collect();
    assert_eq!(distances.join(" "), "10 16 32 33 16 10 25 32 32 25 10 16 33 32 16 10");
}

/// A folder with a tree of files given by path below `sys/devices/system`.
fn tree(files: &[(String, String)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (file, content) in files {
        let path = folder.path().join("sys/devices/system").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    folder
}

/// CPUs of these packages, `0-3;4-7`, and nodes.
fn packages_and_nodes(packages: &str, nodes: &[(u32, &str)]) -> Vec<(String, String)> {
    let mut files = vec![("cpu/online".to_owned(), packages.replace(';', ","))];
    for package in packages.split(';') {
        for cpu in expand(package) {
            files.push((format!("cpu/cpu{cpu}/topology/package_cpus_list"), package.to_owned()));
            files.push((format!("cpu/cpu{cpu}/topology/core_cpus_list"), cpu.to_string()));
        }
    }
    for (node, cpus) in nodes {
        files.push((format!("node/node{node}/cpulist"), (*cpus).to_owned()));
    }
    files
}

fn drawn(folder: &tempfile::TempDir) -> String {
    let source = folder.path().to_str().unwrap();
    check(source);
    svg(source)
}

#[test]
fn machine_of_one_cpu_is_drawn() {
    let drawing = drawn(&tree(&packages_and_nodes("0", &[])));
    let document = Document::parse(&drawing).unwrap();
    assert_eq!(cpus(document.root()), [0]);
    assert!(!drawing.contains("NUMA distances"));
}

#[test]
fn nodes_that_cut_packages_are_marks_on_the_cpus() {
    let drawing = drawn(&tree(&packages_and_nodes("0-3;4-7", &[(0, "0-1"), (2, "2-5"), (3, "6-7")])));
    let document = Document::parse(&drawing).unwrap();
    assert!(!document.descendants().any(|node| class(node) == "node"));
    let marks: Vec<&str> =
        document.descendants().filter(|node| class(*node) == "mark-name").filter_map(|node| node.text()).collect();
    assert_eq!(marks, ["n0", "n0", "n2", "n2", "n2", "n2", "n3", "n3"]);
    assert!(drawing.contains("node 2, which cuts across boxes: CPUs"), "{drawing}");
}

#[test]
fn packages_inside_a_node_are_drawn_inside_it_and_a_memory_node_empty() {
    let drawing = drawn(&tree(&packages_and_nodes("0-1;2-3", &[(0, "0-3"), (5, "")])));
    let document = Document::parse(&drawing).unwrap();
    let node = document.descendants().find(|node| node.text() == Some("node 0")).unwrap().parent().unwrap();
    let packages = node.children().filter(is_unit);
    assert_eq!(packages.map(cpus).collect::<Vec<_>>(), [[0, 1], [2, 3]]);
    assert!(document.descendants().any(|node| class(node) == "name" && node.text() == Some("node 5")));
}

#[test]
fn offline_cpus_are_drawn_apart() {
    let mut files = packages_and_nodes("0-1", &[]);
    files.push(("cpu/present".to_owned(), "0-3".to_owned()));
    let drawing = drawn(&tree(&files));
    let document = Document::parse(&drawing).unwrap();
    let shelf = document.descendants().find(|node| class(*node) == "shelf").unwrap().parent().unwrap();
    assert_eq!(cpus(shelf), [2, 3]);
}

#[test]
fn kinds_of_cores_have_their_own_shade_and_legend() {
    let mut files = packages_and_nodes("0-3", &[]);
    for (cpu, capacity) in [(0, 1024), (1, 1024), (2, 446), (3, 446)] {
        files.push((format!("cpu/cpu{cpu}/cpu_capacity"), capacity.to_string()));
    }
    let drawing = drawn(&tree(&files));
    let document = Document::parse(&drawing).unwrap();
    let fills: Vec<&str> = document
        .descendants()
        .filter(|node| class(*node) == "cpu" && is_unit(&node.parent().unwrap()))
        .filter_map(|node| node.attribute("fill"))
        .collect();
    assert!(fills[0] == fills[1] && fills[2] == fills[3] && fills[0] != fills[2], "{fills:?}");
    let entry = |text: &str| {
        document.descendants().any(|node| node.text().is_some_and(|found| found.replace('\u{a0}', " ") == text))
    };
    assert!(entry("2 cores: capacity 1024") && entry("2 cores: capacity 446"), "{drawing}");
}

#[test]
fn odd_names_are_escaped_and_too_long_ones_cut() {
    let outer = tree(&packages_and_nodes("0", &[]));
    let folder = outer.path().join("<a>&\"b'\u{1b}[31m\u{fffe} é\u{1f600}");
    std::fs::rename(outer.path().join("sys"), {
        std::fs::create_dir(&folder).unwrap();
        folder.join("sys")
    })
    .unwrap();
    let drawing = svg(folder.to_str().unwrap());
    let document = Document::parse(&drawing).unwrap();
    let title = document.descendants().find(|node| class(*node) == "title").unwrap();
    assert_eq!(title.text(), Some("<a>&\"b'\\u{1b}[31m\u{fffd} é\u{1f600}"));

    let long = outer.path().join("x".repeat(200));
    std::fs::rename(&folder, &long).unwrap();
    let drawing = svg(long.to_str().unwrap());
    let document = Document::parse(&drawing).unwrap();
    check_page(&document, "long name");
    let title = document.descendants().find(|node| class(*node) == "title").unwrap();
    assert!(title.text().unwrap().ends_with("xx…"));
}

#[test]
fn equal_machines_give_equal_bytes_in_files_and_on_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kunpeng.svg");
    let output = huddle(&["kunpeng920", "--svg", file.to_str().unwrap()]);
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), svg("kunpeng920"));
    assert_eq!(names(folder.path()), ["kunpeng.svg"]);
}

#[test]
fn nothing_outside_the_file_is_needed() {
    let drawing = svg("xeon-2s44c88t");
    for foreign in ["<script", "href", "url(", "@import", "@font-face"] {
        assert!(!drawing.contains(foreign), "{foreign}");
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn unwritable_files_and_wrong_requests_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let existing = inside("old.svg");
    std::fs::write(&existing, "old").unwrap();
    for (args, status, part) in [
        (vec!["kunpeng920", "--svg", &inside("missing/x.svg")], 1, "missing/x.svg: cannot be written: No such file"),
        (vec!["kunpeng920", "--svg", &inside("old.svg/x.svg")], 1, "old.svg/x.svg: cannot be written: Not a directory"),
        (vec!["kunpeng920", "--svg", folder.path().to_str().unwrap()], 2, "is a folder; give a file"),
        (vec!["kunpeng920", "--svg", "/dev/full"], 1, "--svg /dev/full: cannot be written: No space left"),
        (vec!["kunpeng920", "--json", "--svg", &existing], 2, "--json and --svg"),
        (vec!["kunpeng930", "--svg", &existing], 2, "no machine `kunpeng930`"),
        (vec![&existing, "--svg", &existing], 1, "old.svg"),
    ] {
        let output = huddle(&args);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{args:?}: {message}");
        assert!(output.stdout.is_empty() && message.lines().count() == 1 && message.contains(part), "{message}");
    }
    assert_eq!(std::fs::read_to_string(&existing).unwrap(), "old");
    assert_eq!(names(folder.path()), ["old.svg"]);
}

#[test]
fn the_file_behind_a_link_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("file.svg"), folder.path().join("link.svg"));
    std::fs::write(&file, "old").unwrap();
    std::os::unix::fs::symlink("file.svg", &link).unwrap();
    assert!(huddle(&["jacobsville", "--svg", link.to_str().unwrap()]).status.success());
    assert!(link.is_symlink());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), svg("jacobsville"));
}
