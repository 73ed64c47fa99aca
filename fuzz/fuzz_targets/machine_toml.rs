#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| huddle_fuzz::machine::machine_toml(data));
