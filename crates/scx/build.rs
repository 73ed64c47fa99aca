//! Makes the header that the interpreter in C shares with Rust and, with the feature `live`, compiles the scheduler for the kernel's
//! virtual machine. Dependents find the headers in `DEP_HUDDLE_SCX_INCLUDE`.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-changed=src/layout.rs");
    println!("cargo::rerun-if-changed=src/live/shared.rs");
    println!("cargo::rerun-if-env-changed=CLANG");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    println!("cargo::metadata=include={}", out.display());
    if let Err(error) = header(&out) {
        println!("cargo::error=plan.h cannot be made of src/layout.rs: {error}");
    }
    #[cfg(feature = "live")]
    live::compile(&out);
}

/// The structs and constants of `src/layout.rs` and `src/live/shared.rs` under their names in C.
fn header(out: &Path) -> Result<(), cbindgen::Error> {
    let names = [
        ("MaskImage", "mask"),
        ("FactsImage", "cpu_facts"),
        ("StepImage", "step"),
        ("PlanImage", "plan"),
        ("Config", "config"),
        ("ExitRecord", "exit_record"),
        ("Counters", "counters"),
        ("CpuState", "cpu_state"),
        ("ClusterState", "cluster_state"),
        ("Ops", "sched_ext_ops"),
    ];
    let types =
        "#define uint8_t u8\n#define uint32_t u32\n#define uint64_t u64\n#define int32_t s32\n#define int64_t s64";
    let export = cbindgen::ExportConfig {
        include: names.iter().map(|(rust, _)| (*rust).to_owned()).collect(),
        rename: names.iter().map(|(rust, c)| ((*rust).to_owned(), (*c).to_owned())).collect(),
        ..cbindgen::ExportConfig::default()
    };
    let config = cbindgen::Config {
        language: cbindgen::Language::C,
        style: cbindgen::Style::Tag,
        include_guard: Some("HUDDLE_PLAN_H".to_owned()),
        no_includes: true,
        after_includes: Some(types.to_owned()),
        export,
        ..cbindgen::Config::default()
    };
    let sources = cbindgen::Builder::new().with_config(config).with_src("src/layout.rs").with_src("src/live/shared.rs");
    sources.generate()?.write_to_file(out.join("plan.h"));
    Ok(())
}

#[cfg(feature = "live")]
mod live {
    use std::path::Path;

    use libbpf_cargo::SkeletonBuilder;

    pub fn compile(out: &Path) {
        let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang-19".to_owned());
        let include = format!("-I{}", out.display());
        let built = SkeletonBuilder::new()
            .source("bpf/main.bpf.c")
            .obj(out.join("huddle.bpf.o"))
            .clang(&clang)
            .clang_args(["-mcpu=v3", "-std=gnu2x", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", &include])
            .build();
        if let Err(error) = built {
            println!("cargo::error=bpf/main.bpf.c does not compile with {clang} (CLANG names another)");
            for line in format!("{error:#}").lines() {
                println!("cargo::error={line}");
            }
        }
    }
}
