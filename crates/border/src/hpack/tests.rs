use super::*;
use proptest::prelude::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |two: &[u8]| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

fn read(decoder: &mut Decoder, text: &str) -> Vec<(String, String)> {
    let block = decoder.decode(&hex(text)).unwrap();
    let string = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let headers = block.headers.iter();
    headers
        .map(|one| (string(&one.name), string(&one.value)))
        .collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    all.iter().map(owned).collect()
}

/// The requests of RFC 7541, appendices C.3 and C.4: three on one connection, plain and
/// Huffman-coded.
#[test]
fn the_examples_of_the_standard_are_read() {
    let first = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "www.example.com"),
    ];
    let second = [&first[..], &[("cache-control", "no-cache")]].concat();
    let third = [
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ];
    let plain = [
        "828684410f7777772e6578616d706c652e636f6d",
        "828684be58086e6f2d6361636865",
        "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
    ];
    let coded = [
        "828684418cf1e3c2e5f23a6ba0ab90f4ff",
        "828684be5886a8eb10649cbf",
        "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
    ];
    for blocks in [plain, coded] {
        let mut decoder = Decoder::default();
        assert_eq!(read(&mut decoder, blocks[0]), pairs(&first));
        assert_eq!(read(&mut decoder, blocks[1]), pairs(&second));
        assert_eq!(read(&mut decoder, blocks[2]), pairs(&third));
        assert_eq!(decoder.size, 164);
    }
}

/// Appendix C.6: a table of 256 bytes, with evictions.
#[test]
fn entries_fall_out_of_a_full_table() {
    let mut decoder = Decoder {
        most: 256,
        ..Decoder::default()
    };
    let first = "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff\
                 6e919d29ad171863c78f0b97c8e9ae82ae43d3";
    let all = read(&mut decoder, first);
    assert_eq!(all[0], (":status".to_owned(), "302".to_owned()));
    assert_eq!(all[2].1, "Mon, 21 Oct 2013 20:13:21 GMT");
    assert_eq!(all[3].1, "https://www.example.com");
    assert_eq!(decoder.size, 222);
    let second = read(&mut decoder, "4883640effc1c0bf");
    assert_eq!(second[0].1, "307");
    assert_eq!(second[3].1, "https://www.example.com");
    assert_eq!(decoder.size, 222);
}

#[test]
fn what_is_broken_or_too_much_is_refused() {
    for text in [
        "80",
        "ff",
        "be",
        "00",
        "0005",
        "3fe1ff7f",
        "8220",
        "4188ffffffffffffffff",
    ] {
        assert_eq!(
            Decoder::default().decode(&hex(text)),
            Err(Malformed),
            "{text}"
        );
    }
    // An HPACK bomb: one large entry, referenced many times.
    let mut bomb = vec![0x40];
    put(&mut bomb, 1, 7, 0);
    bomb.push(b'a');
    put(&mut bomb, 3000, 7, 0);
    bomb.extend(vec![b'x'; 3000]);
    bomb.extend(vec![0xbe; 100]);
    assert_eq!(Decoder::default().decode(&bomb), Err(Malformed));
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        headers in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..200), prop::collection::vec(any::<u8>(), 0..300), any::<bool>()),
            0..20,
        ),
        sizes in prop::collection::vec(0usize..TABLE, 0..3),
    ) {
        let headers: Vec<Header> = headers
            .into_iter()
            .map(|(name, value, never)| Header { name, value, never })
            .collect();
        let block = Decoder::default().decode(&encode(&sizes, &headers)).unwrap();
        prop_assert_eq!(block, Block { sizes, headers });
    }

    #[test]
    fn any_bytes_are_read_without_harm(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8)) {
        let mut decoder = Decoder::default();
        for block in blocks {
            let _ = decoder.decode(&block);
            prop_assert!(decoder.size <= TABLE);
        }
    }
}
