//! The structs that Rust hands to C are the same bytes on both sides.

use huddle_scx_native::{layout, own_layout};

#[test]
fn structs_have_one_layout_in_c_and_rust() {
    let theirs: Vec<usize> = layout().into_iter().map(|value| value as usize).collect();
    assert_eq!(theirs, own_layout(), "C (left) and Rust differ, in the order of the list in src/native.c");
}
