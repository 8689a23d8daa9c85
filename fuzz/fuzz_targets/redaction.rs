#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| motu_fuzzed::redaction(data));
