//! The sentences, in the order of the variants.

use std::fmt;

use super::Error;
use super::words::List;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnsupportedHeadDim {
                dtype,
                head_dim,
                supported,
            } => write!(
                f,
                "config: head_dim = {head_dim} is not supported for {}, must be one of {}",
                dtype.name(),
                List(supported)
            ),
            Self::HeadRatio {
                num_q_heads,
                num_kv_heads,
            } => write!(
                f,
                "config: num_q_heads = {num_q_heads}, must be a multiple of num_kv_heads \
                 {num_kv_heads}"
            ),
            Self::Scale { scale } => write!(
                f,
                "config: scale = {scale}, must be finite, also after multiplication by log2(e)"
            ),
            Self::OutOfRange {
                op,
                argument,
                value,
                min,
                max,
            } => write!(
                f,
                "{op}: {argument} = {value}, must be between {min} and {max}"
            ),
            Self::SplitTokens {
                split_tokens,
                unit,
                max,
            } => write!(
                f,
                "plan: split_tokens = {split_tokens}, must be a positive multiple of {unit} and \
                 at most {max}"
            ),
            Self::TooManySplits {
                max_seq_len,
                split_tokens,
                num_splits,
                max,
            } => write!(
                f,
                "plan: max_seq_len = {max_seq_len} with splits of {split_tokens} tokens makes \
                 {num_splits} splits, must be at most {max}"
            ),
            Self::Overflow {
                op,
                argument,
                shape,
            } => write!(
                f,
                "{op}: the size of {argument} overflows {} bits for {shape}",
                usize::BITS
            ),
            Self::DTypeMismatch {
                op,
                found,
                expected,
            } => write!(
                f,
                "{op}: the tensors hold {}, must hold the configuration's {}",
                found.name(),
                expected.name()
            ),
            Self::ShapeMismatch {
                op,
                argument,
                dimension,
                found,
                expected,
            } => write!(
                f,
                "{op}: {argument} has {dimension} {found}, must have {expected}"
            ),
            Self::StrideNotAligned {
                op,
                argument,
                stride,
                elements,
                bytes,
            } => write!(
                f,
                "{op}: {argument}.{stride}_stride = {elements} elements ({bytes} bytes), must be \
                 a multiple of {} bytes",
                crate::ALIGNMENT
            ),
            Self::StrideTooLarge {
                op,
                argument,
                stride,
                elements,
                element_bytes,
            } => write!(
                f,
                "{op}: {argument}.{stride}_stride = {elements} elements of {element_bytes} \
                 bytes, must span at most {} bytes",
                isize::MAX
            ),
            Self::BaseNotAligned {
                op,
                argument,
                address,
                alignment,
            } => write!(
                f,
                "{op}: {argument} starts at address {address:#x}, must be a multiple of \
                 {alignment} bytes"
            ),
            Self::NullPointer { op, argument } => write!(
                f,
                "{op}: {argument} is the null address, must point to device memory"
            ),
            Self::BufferTooSmall {
                op,
                argument,
                found,
                needed,
                shape,
            } => write!(
                f,
                "{op}: {argument} holds {found} elements, must hold at least {needed} for {shape}"
            ),
            Self::OutputOverlap {
                op,
                token_stride,
                head_stride,
                num_seqs,
                num_heads,
                head_dim,
            } => write!(
                f,
                "{op}: out.token_stride = {token_stride} and out.head_stride = {head_stride} \
                 make rows overlap, must keep {num_seqs} × {num_heads} rows of {head_dim} \
                 elements apart"
            ),
            Self::CacheOverlap {
                op,
                argument,
                strides,
                rows,
                head_dim,
            } => write!(
                f,
                "{op}: strides of {}, {} and {} elements (block, token, head) make rows of \
                 {argument} overlap, must keep {} × {} × {} rows of {head_dim} elements apart",
                strides[0], strides[1], strides[2], rows[0], rows[1], rows[2]
            ),
            Self::TensorsOverlap {
                op,
                argument,
                address,
                other,
                other_address,
            } => write!(
                f,
                "{op}: {argument} at address {address:#x} shares rows with {other} at \
                 {other_address:#x}, must be apart from it"
            ),
            Self::NegativeSeqLen { op, index, value } => {
                write!(f, "{op}: seq_lens[{index}] = {value}, must be at least 0")
            }
            Self::SeqLenPastTable {
                op,
                index,
                value,
                max_blocks_per_seq,
                block_size,
            } => write!(
                f,
                "{op}: seq_lens[{index}] = {value}, must be at most {} (block table of \
                 {max_blocks_per_seq} columns × block_size {block_size})",
                max_blocks_per_seq.saturating_mul(*block_size)
            ),
            Self::SeqLenPastCapacity {
                op,
                index,
                value,
                max_seq_len,
            } => write!(
                f,
                "{op}: seq_lens[{index}] = {value}, must be at most max_seq_len {max_seq_len}"
            ),
            Self::TableEntry {
                op,
                sequence,
                column,
                value,
                num_blocks,
            } => write!(
                f,
                "{op}: block_table[{sequence}][{column}] = {value}, must be {}< num_blocks \
                 {num_blocks}",
                if *value < 0 { ">= 0 and " } else { "" }
            ),
            Self::Slot {
                op,
                index,
                value,
                num_blocks,
                block_size,
            } => write!(
                f,
                "{op}: slot_mapping[{index}] = {value}, must be < {num_blocks} blocks × \
                 block_size {block_size}"
            ),
            Self::MoreSlotsThanRows { op, slots, rows } => write!(
                f,
                "{op}: slot_mapping has {slots} slots, must have at most the {rows} rows"
            ),
            Self::PairBlock {
                op,
                index,
                side,
                value,
                num_blocks,
            } => write!(
                f,
                "{op}: the {side} of pairs[{index}] = {value}, must be >= 0 and < num_blocks \
                 {num_blocks}"
            ),
            Self::PairConflict {
                op,
                index,
                other,
                block,
            } => write!(
                f,
                "{op}: pairs[{index}] takes part in block {block}, which pairs[{other}] writes; \
                 must be in another call"
            ),
            Self::PairOntoItself { op, index, block } => write!(
                f,
                "{op}: pairs[{index}] copies block {block} onto itself, must name two blocks or \
                 be left out"
            ),
            Self::CacheMismatch {
                op,
                index,
                property,
                found,
                expected,
            } => write!(
                f,
                "{op}: caches[{index}] has {property} {found}, must have {expected}"
            ),
            Self::WorkspaceTooSmall { op, found, needed } => write!(
                f,
                "{op}: the workspace holds {found} bytes, must hold at least {needed}"
            ),
            Self::GridTooLarge {
                entry,
                num_seqs,
                num_kv_heads,
                num_splits,
            } => write!(
                f,
                "plan: {entry} would launch {num_seqs} sequences × {num_kv_heads} kv heads × \
                 {num_splits} splits, must fit a grid of 2147483647 × 65535 × 65535"
            ),
            Self::ArtefactUnreadable { path, kind } => {
                write!(f, "ptx: cannot read {}: {kind}", path.display())
            }
            Self::ArtefactNotRegular { path } => write!(
                f,
                "ptx: cannot read {}: it is not a regular file",
                path.display()
            ),
            Self::ManifestSyntax {
                line,
                column,
                reason,
            } => write!(
                f,
                "ptx: manifest.json line {line}, column {column}: {reason}"
            ),
            Self::AbiVersion { found, expected } => write!(
                f,
                "ptx: the manifest has abi_version {found}, must have {expected}"
            ),
            Self::ArtefactMismatch {
                file,
                symbol,
                property,
                found,
                expected,
            } => write!(
                f,
                "ptx: {symbol} in {file} has {property} {found}, must have {expected}"
            ),
            #[cfg(feature = "emulator")]
            Self::EmulatorLoad { file, source } => write!(f, "emulator: {file}: {source}"),
            #[cfg(feature = "emulator")]
            Self::Emulated { subject, source } => write!(f, "emulator: {subject}: {source}"),
            Self::OutputNotWritten {
                op,
                argument,
                sequence,
                head,
            } => write!(
                f,
                "{op}: the kernel left {argument}[{sequence}][{head}] unwritten, must write \
                 every row"
            ),
            Self::DeviceTooOld {
                file,
                target,
                device,
                capability,
            } => write!(
                f,
                "ptx: {file} is built for {target}, cannot run on {device} of compute capability \
                 {}.{}",
                capability.0, capability.1
            ),
            Self::DriverTooOld {
                file,
                ptx_version,
                needed,
                driver,
            } => write!(
                f,
                "ptx: {file} has PTX version {ptx_version} and needs a driver for CUDA {}.{}, \
                 this driver is for CUDA {}.{}",
                needed.0, needed.1, driver.0, driver.1
            ),
            Self::SharedMemory {
                entry,
                bytes,
                device,
                max,
            } => write!(
                f,
                "cuda: {entry} needs {bytes} bytes of shared memory per block, {device} has at \
                 most {max}"
            ),
            Self::Driver {
                call,
                subject,
                name,
                number,
                detail,
            } => write!(
                f,
                "cuda: {call} for {subject} failed with {name} ({number}): {detail}"
            ),
            Self::ForeignContext { op, argument } => write!(
                f,
                "{op}: {argument} belongs to another CUDA context, must belong to the back end's"
            ),
            Self::ElementSize {
                op,
                argument,
                found,
                expected,
            } => write!(
                f,
                "{op}: {argument} has elements of {found} bytes, must have elements of {expected}"
            ),
            Self::MissingEntry {
                symbol,
                dtype,
                head_dim,
            } => write!(
                f,
                "ptx: the manifest lists no entry {symbol}, must list it for {} with head_dim \
                 {head_dim}",
                dtype.name()
            ),
            Self::MissingCacheEntry { symbol } => write!(
                f,
                "ptx: the manifest lists no entry {symbol}, must list it for operations on the \
                 cache"
            ),
        }
    }
}
