//! The structs of `plan.h` and their twins in Rust are the same bytes.

use std::mem::{offset_of, size_of};

use huddle_scx::image::{AffineImage, FactsImage, MAX_STEPS, MaskImage, NR_SETS, PlanImage, StepImage};
use huddle_scx_native::{layout, own_layout};

/// Names each value for the message of a failure.
macro_rules! offsets {
    ($type:ty: $($field:ident),*) => {
        [(concat!("size of ", stringify!($type)), size_of::<$type>())].into_iter()
            $(.chain([(concat!(stringify!($type), ".", stringify!($field)), offset_of!($type, $field))]))*
    };
}

#[test]
fn structs_have_one_layout_in_c_and_rust() {
    let own = ["size of World", "World.waker_load", "World.waker_keeps_sync", "size of Placed", "Placed.claimed"];
    let ours: Vec<(&str, usize)> = [("MAX_STEPS", MAX_STEPS), ("NR_KINDS", 11), ("NR_SETS", NR_SETS)]
        .into_iter()
        .chain(own.into_iter().zip(own_layout()))
        .chain(offsets!(MaskImage: at, first, len, weight))
        .chain(offsets!(AffineImage: span, imbalance_pct))
        .chain(offsets!(StepImage: kind, of, set, flags, spare))
        .chain(offsets!(PlanImage: entry, used, nr_steps, after_scans, nr_words, nr_clusters, steps))
        .chain(offsets!(
            FactsImage: sets, ids, llc_index, affine_from, affine_len, cluster, llc_from, llc_len, node_from, node_len
        ))
        .collect();
    let theirs = layout();
    assert_eq!(theirs.len(), ours.len());
    for ((name, ours), theirs) in ours.into_iter().zip(theirs) {
        assert_eq!(theirs as usize, ours, "{name}");
    }
}
