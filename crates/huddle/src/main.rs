//! huddle
fn main() {}
