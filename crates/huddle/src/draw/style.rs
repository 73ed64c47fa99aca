//! Colours and text styles.
//!
//! Levels differ in hue and in lightness, boxes carry their names, and cells their numbers: nothing is told by hue alone.

use super::units::Level;

/// Class of a CPU.
pub const CPU: &str = "cpu";
/// Class of an offline CPU.
pub const OFFLINE: &str = "offline";
/// Class of a node without CPUs.
pub const MEMORY: &str = "memory";
/// Class of a strip that stands for a cache.
pub const STRIP: &str = "strip";
/// Class of a mark that stands for a set that cuts across the boxes.
pub const MARK: &str = "mark";
/// Class of the box of offline CPUs.
pub const SHELF: &str = "shelf";

/// The style sheet.
pub const SHEET: &str = "
.page{fill:#fff}
.drawer,.book,.package,.node,.llc,.cluster,.core,.cache,.cpu,.offline,.memory,.shelf{stroke-width:1}
.drawer{fill:#dcdcdc;stroke:#222}
.book{fill:#e7e4ef;stroke:#5b4a8a}
.package{fill:#f0f0f0;stroke:#5a5a5a}
.node{fill:#dfeaf6;stroke:#2f6aa8}
.llc{fill:#fff6dc;stroke:#a87400}
.cluster{fill:#d5ece2;stroke:#0b7a58}
.cache{fill:#f7e7f1;stroke:#9a4a7c}
.core{fill:#fff;stroke:#333}
.cpu{stroke:#555}
.core~.cpu{stroke:#999}
.dense .cpu,.dense .core{stroke:#777;stroke-width:.5}
.offline{fill:#cfcfcf;stroke:#8a8a8a;stroke-dasharray:3 2}
.memory{fill:#fff;stroke:#2f6aa8;stroke-dasharray:5 3}
.shelf{fill:#f6f6f6;stroke:#b0b0b0}
.strip{fill:#f2c14e}
.distance{stroke:#fff;stroke-width:.5}
.tile{shape-rendering:crispEdges}
text{fill:#111}
.title,.heading{font-weight:bold}
.number,.mark-name,.node-id,.on-light,.on-dark{text-anchor:middle}
.node-id,.facts{fill:#444}
.on-dark{fill:#fff}
";

/// The class of a box.
pub fn class(level: Level) -> &'static str {
    match level {
        Level::Drawer => "drawer",
        Level::Book => "book",
        Level::Package => "package",
        Level::Node => "node",
        Level::Llc => "llc",
        Level::Cluster => "cluster",
        Level::Core => "core",
        Level::Cache => "cache",
    }
}

/// The colour of a kind of core, the most capable darkest; white when there is one kind.
pub fn kind(index: usize, kinds: usize) -> String {
    if kinds < 2 {
        return "#ffffff".to_owned();
    }
    let part = (index * 1000 / (kinds - 1)) as i64;
    let mix = |from: i64, to: i64| from + (to - from) * part / 1000;
    format!("#{:02x}{:02x}{:02x}", mix(0x8f, 0xff), mix(0xb4, 0xff), mix(0xe0, 0xff))
}

/// The colour of a mark; black text is readable on each, and neighbours are told apart by the colour-blind.
pub fn mark(index: usize) -> &'static str {
    const COLOURS: [&str; 8] = ["#77aadd", "#ee8866", "#eedd88", "#44bb99", "#ffaabb", "#99ddff", "#bbcc33", "#dddddd"];
    COLOURS[index % COLOURS.len()]
}
