//! Compiles the interpreter's headers, as the live scheduler includes them, into a native library.

fn main() {
    let headers = "../scx/bpf";
    println!("cargo::rerun-if-changed={headers}");
    println!("cargo::rerun-if-changed=src/native.c");
    cc::Build::new()
        .file("src/native.c")
        .include(headers)
        .include(std::env::var_os("DEP_HUDDLE_SCX_INCLUDE").unwrap_or_default())
        .std("gnu11")
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .compile("huddle_native");
}
