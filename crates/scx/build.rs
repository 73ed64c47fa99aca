//! With the feature `live`: compiles the scheduler for the kernel's virtual machine.

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    #[cfg(feature = "live")]
    live::compile();
}

#[cfg(feature = "live")]
mod live {
    use std::path::PathBuf;

    use libbpf_cargo::SkeletonBuilder;

    pub fn compile() {
        let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang-19".to_owned());
        let object = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join("huddle.bpf.o");
        let built = SkeletonBuilder::new()
            .source("bpf/main.bpf.c")
            .obj(object)
            .clang(&clang)
            .clang_args(["-mcpu=v3", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"])
            .build();
        if let Err(error) = built {
            println!("cargo::error=bpf/main.bpf.c does not compile with {clang} (CLANG names another): {error:#}");
        }
    }
}
