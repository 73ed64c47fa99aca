#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| huddle_fuzz::records::policy_toml(data));
