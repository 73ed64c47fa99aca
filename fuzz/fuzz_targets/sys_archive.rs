#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| huddle_fuzz::machine::sys_archive(data));
