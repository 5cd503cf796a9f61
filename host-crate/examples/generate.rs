//! A small transformer generates text twice: through a block pool, with a shared prompt and forks,
//! and with a contiguous cache for every continuation. Both give the same tokens.
//!
//! `cargo run --release --example generate`
//!
//! The weights are random numbers, so the text means nothing; what is shown is that sharing blocks,
//! copying them before they are written and finding prefixes again change no bit.

use paged_attention::contiguous::{self, ContiguousInputs};
use paged_attention::pool::{BlockCopy, BlockPool, SequenceBlocks};
use paged_attention::*;

const LAYERS: usize = 3;
const WIDTH: usize = 128;
const HIDDEN: usize = 256;
const Q_HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 32;
/// Elements of one token's keys (or values) in one layer.
const KV: usize = KV_HEADS * HEAD_DIM;
const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz      ";

const BLOCK_SIZE: usize = 8;
const NUM_BLOCKS: usize = 96;
const MAX_LEN: usize = 128;
/// Tokens that every continuation generates.
const NEW_TOKENS: usize = 40;
/// Continuations of every prompt.
const FORKS: usize = 3;

const SYSTEM: &str = "you are a small transformer and you know no words ";
const PROMPTS: [&str; 3] = ["tell me of blocks", "tell me of tables", "say it again"];

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A sequence of pseudo-random numbers (splitmix64).
struct Random(u64);

impl Random {
    /// Uniform in [0, 1).
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u32 << 24) as f32
    }

    /// `[inputs, outputs]`, scaled to keep the size of what passes through.
    fn matrix(&mut self, inputs: usize, outputs: usize) -> Vec<f32> {
        let scale = (3.0 / inputs as f32).sqrt();
        (0..inputs * outputs)
            .map(|_| scale * (2.0 * self.next() - 1.0))
            .collect()
    }
}

struct Layer {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    out: Vec<f32>,
    up: Vec<f32>,
    down: Vec<f32>,
}

struct Model {
    embedding: Vec<f32>,
    layers: Vec<Layer>,
    head: Vec<f32>,
}

/// `x [inputs]` times `matrix [inputs, outputs]`: row by row, so that no result depends on a batch.
fn multiply(x: &[f32], matrix: &[f32]) -> Vec<f32> {
    let outputs = matrix.len() / x.len();
    let mut y = vec![0.0; outputs];
    for (x, row) in x.iter().zip(matrix.chunks_exact(outputs)) {
        y.iter_mut().zip(row).for_each(|(y, w)| *y += x * w);
    }
    y
}

fn normalise(x: &[f32]) -> Vec<f32> {
    let square = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
    x.iter().map(|x| x / (square + 1e-5).sqrt()).collect()
}

/// Applies `f` to every row of `width` elements.
fn rows(x: &[f32], width: usize, f: impl Fn(&[f32]) -> Vec<f32>) -> Vec<f32> {
    x.chunks_exact(width).flat_map(f).collect()
}

fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let layer = |random: &mut Random| Layer {
            q: random.matrix(WIDTH, Q_HEADS * HEAD_DIM),
            k: random.matrix(WIDTH, KV),
            v: random.matrix(WIDTH, KV),
            out: random.matrix(Q_HEADS * HEAD_DIM, WIDTH),
            up: random.matrix(WIDTH, HIDDEN),
            down: random.matrix(HIDDEN, WIDTH),
        };
        Self {
            embedding: random.matrix(WIDTH, ALPHABET.len()),
            layers: (0..LAYERS).map(|_| layer(&mut random)).collect(),
            head: random.matrix(WIDTH, ALPHABET.len()),
        }
    }

    /// Logits of the next token for a batch of (token, position). `attend(layer, q, k, v)` stores
    /// the new keys and values and gives the attention's output.
    fn forward(
        &self,
        batch: &[(u32, usize)],
        mut attend: impl FnMut(usize, &[f32], &[f32], &[f32]) -> Result<Vec<f32>>,
    ) -> Result<Vec<f32>> {
        let mut x = Vec::new();
        for &(token, position) in batch {
            let embedding = &self.embedding[token as usize * WIDTH..][..WIDTH];
            x.extend(embedding.iter().enumerate().map(|(i, e)| {
                let angle = position as f32 / 1000f32.powf((i / 2) as f32 / (WIDTH / 2) as f32);
                10.0 * e + if i % 2 == 0 { angle.sin() } else { angle.cos() }
            }));
        }
        for (i, layer) in self.layers.iter().enumerate() {
            let normal = rows(&x, WIDTH, normalise);
            let [q, k, v] =
                [&layer.q, &layer.k, &layer.v].map(|w| rows(&normal, WIDTH, |x| multiply(x, w)));
            let attended = attend(i, &q, &k, &v)?;
            add(
                &mut x,
                &rows(&attended, Q_HEADS * HEAD_DIM, |x| multiply(x, &layer.out)),
            );
            let normal = rows(&x, WIDTH, normalise);
            let mut hidden = rows(&normal, WIDTH, |x| multiply(x, &layer.up));
            hidden.iter_mut().for_each(|h| *h = h.max(0.0));
            add(&mut x, &rows(&hidden, HIDDEN, |x| multiply(x, &layer.down)));
        }
        Ok(rows(&x, WIDTH, |x| multiply(&normalise(x), &self.head)))
    }
}

/// Draws a token; the same for the same logits, continuation and position.
fn sample(logits: &[f32], continuation: usize, position: usize) -> u32 {
    let mut random = Random((continuation * MAX_LEN + position) as u64);
    // The largest of logits with Gumbel noise is a draw from their softmax.
    let noisy = logits
        .iter()
        .map(|x| 2.0 * x - (-(1.0 - random.next()).ln()).ln());
    let best = noisy.enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
    best.map_or(0, |(token, _)| token as u32)
}

fn config() -> AttentionConfig {
    AttentionConfig::new(DType::F32, Q_HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE)
}

/// A plan whose results depend on no other sequence.
fn plan(num_seqs: usize) -> Result<Plan> {
    let policy = SplitPolicy::Tokens(512);
    Ok(Plan::new(
        &config(),
        num_seqs,
        MAX_LEN,
        policy,
        &DeviceLimits::this_cpu(),
    )?)
}

/// Keys and values of every layer in blocks.
struct Paged {
    pool: BlockPool,
    k: Vec<Vec<f32>>,
    v: Vec<Vec<f32>>,
    copies: usize,
    most_blocks: usize,
}

impl Paged {
    fn new() -> Result<Self> {
        let pool = BlockPool::new(NUM_BLOCKS, BLOCK_SIZE)?;
        // NaN shows if an unused slot is ever read.
        let empty = vec![vec![f32::NAN; NUM_BLOCKS * BLOCK_SIZE * KV]; LAYERS];
        let (k, v) = (empty.clone(), empty);
        Ok(Self {
            pool,
            k,
            v,
            copies: 0,
            most_blocks: 0,
        })
    }

    /// Passes one token of every sequence through the model.
    fn step(
        &mut self,
        model: &Model,
        batch: &mut [SequenceBlocks],
        tokens: &[u32],
    ) -> Result<Vec<f32>> {
        let mut copies: Vec<BlockCopy> = Vec::new();
        let (mut rows, mut slots, mut table, mut lens) = (vec![], vec![], vec![], vec![]);
        let width = MAX_LEN.div_ceil(BLOCK_SIZE);
        for (sequence, &token) in batch.iter_mut().zip(tokens) {
            let position = sequence.len();
            copies.extend(sequence.append_tokens(&[token])?);
            rows.push((token, position));
            slots.extend(sequence.slots(position..position + 1)?);
            let start = table.len();
            table.resize(start + width, 0);
            sequence.write_row(&mut table[start..])?;
            lens.push(sequence.len() as i32);
        }
        fn cache(data: &mut [f32]) -> CacheViewMut<'_, f32> {
            CacheViewMut::dense(
                data,
                CacheLayout::Nhd,
                NUM_BLOCKS,
                BLOCK_SIZE,
                KV_HEADS,
                HEAD_DIM,
            )
        }
        let pairs: Vec<_> = copies.iter().map(BlockCopy::pair).collect();
        let mut caches: Vec<_> = self
            .k
            .iter_mut()
            .chain(&mut self.v)
            .map(|data| cache(data))
            .collect();
        cpu::copy_blocks(&mut caches, &pairs)?;
        self.copies += pairs.len();
        drop(copies);

        let n = batch.len();
        let plan = plan(n)?;
        let mut workspace = vec![0.0; plan.workspace_len()];
        let logits = model.forward(&rows, |layer, q, k, v| {
            let new = |rows| RowsView::contiguous(rows, n, KV_HEADS, HEAD_DIM);
            cpu::reshape_and_cache(new(k), cache(&mut self.k[layer]), &slots)?;
            cpu::reshape_and_cache(new(v), cache(&mut self.v[layer]), &slots)?;
            let view = |data| {
                let layout = CacheLayout::Nhd;
                CacheView::dense(data, layout, NUM_BLOCKS, BLOCK_SIZE, KV_HEADS, HEAD_DIM)
            };
            let inputs = DecodeInputs {
                q: RowsView::contiguous(q, n, Q_HEADS, HEAD_DIM),
                k_cache: view(&self.k[layer]),
                v_cache: view(&self.v[layer]),
                block_table: BlockTable::new(&table, n, width),
                seq_lens: &lens,
            };
            let mut out = vec![0.0; q.len()];
            let view = RowsViewMut::contiguous(&mut out, n, Q_HEADS, HEAD_DIM);
            cpu::decode(&plan, &inputs, view, None, &mut workspace)?;
            Ok(out)
        })?;
        batch.iter_mut().for_each(SequenceBlocks::publish);
        self.most_blocks = self.most_blocks.max(self.pool.num_held());
        Ok(logits)
    }

    /// Every prompt's continuations: prompts one after the other, then all continuations in one batch.
    fn generate(&mut self, model: &Model, prompts: &[Vec<u32>]) -> Result<Vec<Vec<u32>>> {
        let (mut batch, mut texts) = (vec![], vec![]);
        for (i, prompt) in prompts.iter().enumerate() {
            let sequence = SequenceBlocks::with_prefix(&self.pool, prompt);
            let found = sequence.len();
            println!(
                "  prompt {}: {found} of {} tokens found in the pool",
                i + 1,
                prompt.len()
            );
            let mut sequence = [sequence];
            let mut logits = vec![];
            for &token in &prompt[found..] {
                logits = self.step(model, &mut sequence, &[token])?;
            }
            for _ in 0..FORKS {
                texts.push(vec![sample(&logits, batch.len(), prompt.len())]);
                batch.push(sequence[0].fork());
            }
        }
        for _ in 1..NEW_TOKENS {
            let last: Vec<u32> = texts.iter().map(|text| text[text.len() - 1]).collect();
            let logits = self.step(model, &mut batch, &last)?;
            for (i, logits) in logits.chunks_exact(ALPHABET.len()).enumerate() {
                texts[i].push(sample(logits, i, batch[i].len()));
            }
        }
        Ok(texts)
    }
}

/// One continuation with keys and values of its own, `[MAX_LEN, KV_HEADS, HEAD_DIM]` per layer.
fn generate_contiguous(model: &Model, prompt: &[u32], continuation: usize) -> Result<Vec<u32>> {
    let mut k = vec![vec![f32::NAN; MAX_LEN * KV]; LAYERS];
    let mut v = k.clone();
    let plan = plan(1)?;
    let mut workspace = vec![0.0; plan.workspace_len()];
    let mut text: Vec<u32> = vec![];
    for position in 0..prompt.len() + NEW_TOKENS - 1 {
        let token = match prompt.get(position) {
            Some(&token) => token,
            None => text[position - prompt.len()],
        };
        let logits = model.forward(&[(token, position)], |layer, q, new_k, new_v| {
            k[layer][position * KV..][..KV].copy_from_slice(new_k);
            v[layer][position * KV..][..KV].copy_from_slice(new_v);
            let inputs = ContiguousInputs {
                q: RowsView::contiguous(q, 1, Q_HEADS, HEAD_DIM),
                keys: &[&k[layer]],
                values: &[&v[layer]],
                seq_lens: &[position as i32 + 1],
            };
            let mut out = vec![0.0; q.len()];
            let view = RowsViewMut::contiguous(&mut out, 1, Q_HEADS, HEAD_DIM);
            contiguous::decode(&plan, &inputs, view, None, &mut workspace)?;
            Ok(out)
        })?;
        if position + 1 >= prompt.len() {
            text.push(sample(&logits, continuation, position + 1));
        }
    }
    Ok(text)
}

fn encode(text: &str) -> Vec<u32> {
    let token = |letter| {
        ALPHABET
            .iter()
            .position(|&known| known == letter)
            .unwrap_or(26)
    };
    text.bytes().map(|letter| token(letter) as u32).collect()
}

fn decode(tokens: &[u32]) -> String {
    tokens
        .iter()
        .map(|&token| char::from(ALPHABET[token as usize]))
        .collect()
}

fn main() -> Result<()> {
    let model = Model::new(1);
    let prompts: Vec<Vec<u32>> = PROMPTS
        .iter()
        .map(|prompt| encode(&format!("{SYSTEM}{prompt}")))
        .collect();
    println!(
        "{LAYERS} layers, {Q_HEADS} query heads on {KV_HEADS} kv heads of {HEAD_DIM}, random weights; \
         {} prompts, {FORKS} continuations each",
        prompts.len()
    );
    println!();
    println!("Paged, {NUM_BLOCKS} blocks of {BLOCK_SIZE} tokens:");
    let mut paged = Paged::new()?;
    let found = paged.generate(&model, &prompts)?;
    let bytes = |tokens: usize| tokens * KV * 2 * LAYERS * size_of::<f32>() / 1024;
    println!("  {} blocks copied before a write to them", paged.copies);
    println!();
    println!("  {:<14}{:<NEW_TOKENS$}  contiguous", "", "paged");
    let mut equal = true;
    for (i, text) in found.iter().enumerate() {
        let prompt = i / FORKS;
        let contiguous = generate_contiguous(&model, &prompts[prompt], i)?;
        let name = format!("prompt {} {}", prompt + 1, i % FORKS + 1);
        println!("  {name:<14}{}  {}", decode(text), decode(&contiguous));
        equal &= text == &contiguous;
    }
    println!();
    println!("Keys and values, at most:");
    println!(
        "  {:<14}{} KiB: {} blocks",
        "paged",
        bytes(paged.most_blocks * BLOCK_SIZE),
        paged.most_blocks
    );
    println!(
        "  {:<14}{} KiB: {} reservations of {MAX_LEN} tokens",
        "contiguous",
        bytes(found.len() * MAX_LEN),
        found.len()
    );
    println!();
    if !equal {
        return Err("the token sequences differ".into());
    }
    println!("All {} token sequences are equal.", found.len());
    Ok(())
}
