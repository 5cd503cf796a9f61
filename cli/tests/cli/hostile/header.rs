//! Headers that are no safetensors header, and tensors that do not lie as the format wants it.

use super::{batch, file, raw, refusal, tensor, with};
use crate::{Folder, run};

#[test]
fn refuses_files_that_end_in_the_header() {
    let whole = file(&batch(), "");
    assert_eq!(
        refusal(&[]),
        "the file holds 0 bytes, must hold at least 8 for the length of the header"
    );
    assert_eq!(
        refusal(&whole[..7]),
        "the file holds 7 bytes, must hold at least 8 for the length of the header"
    );
    let length = u64::from_le_bytes(whole[..8].try_into().unwrap());
    assert_eq!(
        refusal(&whole[..100]),
        format!(
            "the header's length is given as {length} bytes, must be at most 92 in a file of 100 \
             bytes"
        )
    );
}

#[test]
fn refuses_header_lengths_past_the_file() {
    for length in [1u64, 1 << 40, u64::MAX - 7, u64::MAX] {
        assert_eq!(
            refusal(&length.to_le_bytes()),
            format!(
                "the header's length is given as {length} bytes, must be at most 0 in a file of 8 \
                 bytes"
            )
        );
    }
}

#[test]
fn refuses_headers_of_another_kind() {
    let deep = "{\"a\":".repeat(100_000);
    let escapes = format!("{{\"q\":\"\u{1b}[2J{}\"}}", "x".repeat(100_000));
    for header in [
        "",
        "{no JSON",
        &deep,
        "{\"q\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}",
        "{\"q\":{\"dtype\":\"F32\",\"shape\":[18446744073709551616],\"data_offsets\":[0,4]}}",
        "{\"q\":{\"dtype\":33,\"shape\":[1],\"data_offsets\":[0,4]}}",
        "{\"q\":{\"dtype\":\"F32\",\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,4]}}",
        &escapes,
        "{\"q\":{\"dtype\":\"F32\",\"shape\":[1]}}",
        "{\"__metadata__\":{\"scale\":1}}",
    ] {
        let message = refusal(&raw(header, &[0; 4]));
        let expected = "the header is not that of a safetensors file: ";
        assert!(message.starts_with(expected), "{message}");
        assert!(message.len() < 300, "{message}");
        assert!(!message.contains(char::is_control), "{message:?}");
    }
    for (header, first) in [("no JSON", "0x6e"), ("[1, 2]", "0x5b"), (" {}", "0x20")] {
        assert_eq!(
            refusal(&raw(header, &[])),
            format!("the header begins with byte {first}, must begin with 0x7b, a `{{`")
        );
    }
}

#[test]
fn refuses_names_that_come_twice() {
    let twice = |header: &str, what: &str| {
        let message = refusal(&raw(header, &[0; 4]));
        assert!(message.contains(what), "{message}");
    };
    let q = "\"q\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}";
    twice(
        &format!("{{{q},{q}}}"),
        "`q` is given twice, names must differ",
    );
    // However the name is written.
    let escaped = q.replace("\"q\"", "\"\\u0071\"");
    twice(
        &format!("{{{q},{escaped}}}"),
        "`q` is given twice, names must differ",
    );
    twice(
        &format!("{{\"__metadata__\":{{\"scale\":\"1\",\"scale\":\"2\"}},{q}}}"),
        "`scale` is given twice, names must differ",
    );
    twice(
        &format!("{{\"__metadata__\":{{}},\"__metadata__\":{{}},{q}}}"),
        "duplicate field `__metadata__`",
    );
}

#[test]
fn refuses_tensors_that_overlap_or_leave_bytes_to_none() {
    let mut more = batch();
    more.push(tensor("more", "U8", &[4], vec![0; 4]));
    more[5].claim = Some((0, 4));
    assert_eq!(
        refusal(&file(&more, "")),
        "tensor q begins at byte 0 of the data, must begin at byte 4, where tensor more ends"
    );
    let mut hole = batch();
    hole.retain(|tensor| tensor.name != "q");
    hole.insert(0, tensor("q", "F32", &[2, 2, 32], vec![0; 516]));
    hole[0].claim = Some((4, 516));
    assert_eq!(
        refusal(&file(&hole, "")),
        "tensor q begins at byte 4 of the data, must begin at byte 0, as the first"
    );
    hole[0].claim = Some((0, 512));
    assert_eq!(
        refusal(&file(&hole, "")),
        "tensor k_cache begins at byte 516 of the data, must begin at byte 512, where tensor q ends"
    );
    let mut trailing = file(&batch(), "");
    trailing.push(0);
    assert_eq!(
        refusal(&trailing),
        "the file holds 3609 bytes of data, must end with its tensors at byte 3608"
    );
}

#[test]
fn tensors_of_others_may_stand_beside_the_batch() {
    let folder = Folder::new("others");
    let (input, output) = (folder.path("in"), folder.path("out"));
    let mut others = batch();
    others.push(tensor("empty", "F64", &[0, 7], vec![]));
    others.push(tensor("scalar", "F8_E4M3", &[], vec![0]));
    others.push(tensor("fours", "F4", &[2], vec![0]));
    std::fs::write(&input, file(&others, "")).unwrap();
    run(&["decode", "-i", &input, "-o", &output, "--check"]).success();

    others.push(tensor("odd", "F4", &[3], vec![0, 0]));
    assert_eq!(
        refusal(&file(&others, "")),
        "tensor odd of shape [3] F4 has 12 bits, must have a multiple of 8"
    );
    others.pop();
    others.push(tensor("new", "F33", &[1], vec![0; 5]));
    assert_eq!(
        refusal(&file(&others, "")),
        "tensor `new` has dtype `F33`, must have one that the format knows: its bytes cannot be \
         counted"
    );
}

#[test]
fn refuses_data_that_end_early() {
    let whole = file(&batch(), "");
    assert_eq!(
        refusal(&whole[..whole.len() - 1]),
        "tensor seq_lens ends at byte 3608 of the data, must end within the 3607 bytes that the file \
         holds"
    );
    let claim = with("v_cache", |v| v.claim = Some((1 << 60, (1 << 60) + 1536)));
    assert_eq!(
        refusal(&file(&claim, "")),
        "tensor v_cache ends at byte 1152921504606848512 of the data, must end within the 3608 bytes \
         that the file holds"
    );
}

#[test]
fn refuses_byte_ranges_that_contradict_the_shape() {
    for (claim, text) in [((512, 2044), "512..2044"), ((2048, 512), "2048..512")] {
        let claim = with("k_cache", |k| k.claim = Some(claim));
        assert_eq!(
            refusal(&file(&claim, "")),
            format!(
                "tensor k_cache of shape [3, 4, 1, 32] F32 lies at bytes {text}, must span 1536 bytes"
            )
        );
    }
}

#[test]
fn refuses_shapes_whose_product_overflows() {
    for shape in [
        [1 << 32, 1 << 32, 1, 1],
        [1 << 61, 1, 1, 32],
        [u64::MAX, 1, 1, 1],
    ] {
        let message = refusal(&file(&with("k_cache", |k| k.shape = shape.to_vec()), ""));
        assert_eq!(
            message,
            format!("tensor k_cache of shape {shape:?} F32 overflows 64 bits")
        );
    }
    // A zero hides nothing: the bytes are 0, and a head of no elements is refused as such.
    let zero = with("k_cache", |k| {
        k.shape = vec![1 << 40, 4, 1, 0];
        k.bytes.clear();
    });
    assert_eq!(
        refusal(&file(&zero, "")),
        "tensor k_cache has shape [1099511627776, 4, 1, 0], its head_dim must be at least 1"
    );
}

#[test]
fn texts_of_a_file_are_escaped_and_shortened() {
    let long = "x".repeat(1_000_000);
    assert_eq!(
        refusal(&file(
            &batch(),
            &format!("\"layout\":\"a\\u001b[2J{long}\"")
        )),
        format!(
            "metadata layout = `a\\u{{1b}}[2J{}… (999945 characters more)`, must be NHD or HND",
            "x".repeat(55)
        )
    );
    let named = |name| {
        let mut named = batch();
        named.push(tensor(name, "F32", &[1], vec![0; 3]));
        refusal(&file(&named, ""))
    };
    assert_eq!(
        named("a\\nb"),
        "tensor a\\nb of shape [1] F32 lies at bytes 3608..3611, must span 4 bytes"
    );
    let ranks = with("q", |q| q.shape = [vec![1; 100_000], vec![128]].concat());
    assert_eq!(
        refusal(&file(&ranks, "")),
        "tensor q has shape [1, 1, 1, 1, 1, 1, 1, 1, … (100001 dimensions)], must have 3 dimensions \
         [num_seqs, num_q_heads, head_dim]"
    );
}
