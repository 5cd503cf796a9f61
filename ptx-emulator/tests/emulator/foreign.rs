//! Another compiler's PTX: a paged attention kernel by nvcc, against a plain f64 loop.

use ptx_emulator::{Launch, Memory, Options};

use crate::support::{checked, load};

const HEADS: usize = 2;
const D: usize = 64;
const BLOCK: usize = 4;
const WIDTH: usize = 8;
const LENS: [usize; 3] = [1, 13, 30];

/// A multiple of 1/64 in [−1, 1): exact in f16, with its f16 bits.
fn sample(i: usize) -> (f64, u16) {
    let value = ((i * 37 + i / 7 * 11) % 128) as f64 / 64.0 - 1.0;
    let bits = (value as f32).to_bits();
    if value == 0.0 {
        return (0.0, 0);
    }
    let half = (bits >> 16 & 0x8000) | ((bits >> 23 & 0xff) - 112) << 10 | (bits >> 13 & 0x3ff);
    (value, half as u16)
}

fn expected(physical: impl Fn(usize, usize) -> usize) -> Vec<f64> {
    let mut out = Vec::new();
    for (s, &len) in LENS.iter().enumerate() {
        for h in 0..HEADS {
            let row = |t: usize| (physical(s, t) * HEADS + h) * D;
            let dot = |t: usize| -> f64 {
                (0..D)
                    .map(|i| sample((s * HEADS + h) * D + i).0 * sample(1000 + row(t) + i).0)
                    .sum()
            };
            let most = (0..len).map(dot).fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = (0..len).map(|t| (dot(t) - most).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for i in 0..D {
                let acc: f64 = (0..len)
                    .map(|t| weights[t] * sample(5000 + row(t) + i).0)
                    .sum();
                let mean = acc / sum;
                let helper = mean / sum + mean.sin() + (-sum).exp() + mean.tanh();
                out.push(mean * [1.0, 2.0, 3.0, 4.0][i & 3] + helper);
            }
        }
    }
    out
}

#[test]
fn attention_by_another_compiler_agrees_with_a_plain_loop() {
    let module = load(include_str!("../foreign/attention.ptx"));
    let memory = Memory::new();
    let blocks = LENS.len() * WIDTH;
    let physical_block = |s: usize, j: usize| (s * WIDTH + j) * 5 % blocks;
    let buffer = |name: &str, bytes: Vec<u8>| {
        let address = memory.alloc(bytes.len() as u64, 256, name).expect("memory");
        memory.write(address, &bytes).expect("inside");
        address
    };
    let halves = |from: usize, count: usize| -> Vec<u8> {
        (from..from + count)
            .flat_map(|i| sample(i).1.to_le_bytes())
            .collect()
    };
    let pool = blocks * BLOCK * HEADS * D;
    let table = (0..LENS.len()).flat_map(|s| (0..WIDTH).map(move |j| physical_block(s, j) as i32));
    let lens = LENS.iter().flat_map(|l| (*l as i32).to_le_bytes());
    let count = LENS.len() * HEADS * D;
    let out = memory.alloc(count as u64 * 4, 256, "out").expect("memory");
    let pointers = [
        buffer("q", halves(0, count)),
        buffer("k", halves(1000, pool)),
        buffer("v", halves(5000, pool)),
        buffer("table", table.flat_map(i32::to_le_bytes).collect()),
        buffer("lens", lens.collect()),
        out,
    ];
    let mut params: Vec<u8> = pointers.iter().flat_map(|p| p.to_le_bytes()).collect();
    params.extend(
        [D, BLOCK, WIDTH]
            .iter()
            .flat_map(|n| (*n as i32).to_le_bytes()),
    );
    let grid = [HEADS as u32, LENS.len() as u32, 1];
    let launch = Launch {
        grid,
        block: [128, 1, 1],
        shared_bytes: 30 * 4,
    };
    let options = Options {
        threads: Some(2),
        ..checked()
    };
    if let Err(error) = module.launch(&memory, "attention", launch, &params, &options) {
        panic!("{error}");
    }
    let mut bytes = vec![0; count * 4];
    memory.read(out, &mut bytes).expect("inside");
    let found = bytes
        .chunks_exact(4)
        .map(|c| f32::from_le_bytes(c.try_into().expect("4 bytes")));
    let wanted = expected(|s, t| physical_block(s, t / BLOCK) * BLOCK + t % BLOCK);
    for (i, (found, wanted)) in found.zip(wanted).enumerate() {
        // Sums of at most 64 terms below 1, a softmax and four functions in f32, all below 8.
        let error = (f64::from(found) - wanted).abs();
        assert!(
            error < 8.0 * 200.0 * f64::from(f32::EPSILON),
            "{i}: {found}, wanted {wanted}"
        );
    }
    let (done, _) = module
        .variable(&memory, "blocks_done")
        .expect("memory")
        .expect("the variable");
    let mut counter = [0; 4];
    memory.read(done, &mut counter).expect("inside");
    assert_eq!(u32::from_le_bytes(counter), 6);
}
