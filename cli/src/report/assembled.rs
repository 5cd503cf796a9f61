//! What an assembler said of the decode entries: a table that `cargo xtask sass --write` makes.

use std::sync::LazyLock;

use paged_attention::Plan;
use paged_attention::kernels::geometry::{TileMap, UNIT_TOKENS, head_warps};
use paged_attention::kernels::variants::DecodeKind;

/// The table.
#[derive(serde::Deserialize)]
pub struct Assembled {
    /// When it was made.
    pub date: String,
    /// The assembler's version.
    pub ptxas: String,
    /// Of the kernels' sources, as in the manifest.
    pub source_hash: String,
    entries: Vec<Entry>,
}

/// A decode entry.
#[derive(serde::Deserialize)]
pub struct Entry {
    entry: String,
    pub registers: Registers,
    /// Instructions of the main loop without nested loops.
    outer: u32,
    /// Instructions of nested loops with products.
    products: u32,
    /// How often a pass executes these; on tensor cores, for each warp of query heads.
    turns: u32,
    /// Instructions of nested loops that copy row by row, for small blocks.
    small_blocks: u32,
    /// Bytes of K and V that a warp copies in one pass.
    bytes: u32,
}

/// Registers per thread.
#[derive(Clone, Copy, serde::Deserialize)]
pub struct Registers {
    pub sm_80: u32,
    pub sm_90: u32,
}

/// The committed table.
pub fn table() -> &'static Assembled {
    static TABLE: LazyLock<Assembled> = LazyLock::new(|| {
        serde_json::from_str(include_str!("assembled.json")).expect("the committed table is read")
    });
    &TABLE
}

impl Assembled {
    /// The row of a plan's decode entry.
    pub fn entry(&self, plan: &Plan) -> Option<&Entry> {
        let wanted = plan.decode_variant().entry;
        self.entries.iter().find(|row| row.entry == wanted)
    }
}

impl Entry {
    /// Machine instructions of the main loop per byte of K and V.
    ///
    /// All of the loop counts, branches that are not taken included. Where blocks are no multiple
    /// of 16, the copies row by row come on top, and those they replace stay in.
    pub fn instructions_per_byte(&self, plan: &Plan) -> f64 {
        let config = plan.config();
        let variant = plan.decode_variant();
        let (warps, steps) = match variant.kind {
            DecodeKind::TensorCore => {
                let warps = head_warps(config.group_size() as u32);
                (warps, TileMap::new(variant.head_dim).steps)
            }
            DecodeKind::CudaCore => (1, 1),
        };
        let rows = match config.block_size.is_multiple_of(UNIT_TOKENS as usize) {
            true => 0,
            false => steps * self.small_blocks,
        };
        f64::from(self.outer + rows + warps * self.turns * self.products) / f64::from(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paged_attention::kernels::variants::DECODE;

    #[test]
    fn every_decode_entry_has_a_row() {
        for variant in DECODE {
            let row = table()
                .entries
                .iter()
                .find(|row| row.entry == variant.entry);
            let row = row.unwrap_or_else(|| panic!("{}", variant.entry));
            assert!(row.registers.sm_80 <= 255 && row.registers.sm_90 <= 255);
        }
        assert_eq!(table().entries.len(), DECODE.len());
    }
}
