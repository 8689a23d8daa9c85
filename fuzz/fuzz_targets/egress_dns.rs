#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| motu_fuzzed::egress_dns(data));
