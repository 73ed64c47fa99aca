#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| huddle_fuzz::records::domains(data));
