use super::*;

mod model;

fn pool(num_blocks: usize, block_size: usize) -> BlockPool {
    BlockPool::new(num_blocks, block_size).unwrap()
}

fn with_tokens(pool: &BlockPool, tokens: &[u32]) -> SequenceBlocks {
    let mut sequence = SequenceBlocks::with_prefix(pool, tokens);
    let rest = &tokens[sequence.len()..];
    assert!(sequence.append_tokens(rest).unwrap().is_none());
    sequence.publish();
    sequence
}

#[test]
fn everything_can_be_sent_and_shared_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<BlockPool>();
    check::<BlockRef>();
    check::<BlockCopy>();
    check::<SequenceBlocks>();
}

#[test]
fn sequences_on_many_threads_lose_no_block() {
    let pool = pool(64, 4);
    let prompt: Vec<u32> = (0..12).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for i in 0..200 {
                    let mut sequence = with_tokens(&pool, &prompt);
                    let mut fork = sequence.fork();
                    let copy = fork.append(1 + i % 3).unwrap();
                    sequence.truncate(i % 12).unwrap();
                    drop(copy);
                    assert_eq!(fork.blocks().len(), fork.len().div_ceil(4));
                }
            });
        }
    });
    pool.lock().check();
    assert_eq!(pool.num_available(), 64);
}

#[test]
fn a_fork_shares_blocks_until_one_of_them_writes() {
    let pool = pool(4, 4);
    let mut a = SequenceBlocks::new(&pool);
    a.append(6).unwrap();
    let mut b = a.fork();
    assert_eq!((a.blocks(), pool.num_held()), (b.blocks(), 2));
    let shared = a.blocks()[1];

    let copy = b.append(1).unwrap().expect("the half-full block is shared");
    assert_eq!(copy.pair(), [i64::from(shared), i64::from(b.blocks()[1])]);
    assert_eq!(b.blocks()[0], a.blocks()[0]);
    assert_ne!(b.blocks()[1], shared);
    // The other one owns its block alone now and writes in place.
    assert!(a.append(1).unwrap().is_none());
    assert_eq!(a.blocks()[1], shared);
}

#[test]
fn a_full_shared_block_needs_no_copy() {
    let pool = pool(4, 4);
    let mut a = SequenceBlocks::new(&pool);
    a.append(4).unwrap();
    let mut b = a.fork();
    assert!(b.append(1).unwrap().is_none());
    assert_eq!(a.blocks(), &b.blocks()[..1]);
}

#[test]
fn blocks_of_a_pending_copy_are_not_handed_out() {
    let pool = pool(4, 4);
    let mut a = SequenceBlocks::new(&pool);
    a.append(1).unwrap();
    let mut b = a.fork();
    let copy = b.append(1).unwrap().unwrap();
    drop((a, b));
    assert_eq!(pool.num_available(), 2);
    let other = [pool.allocate().unwrap(), pool.allocate().unwrap()];
    let ids = other.each_ref().map(|block| i64::from(block.block()));
    assert!(copy.pair().iter().all(|block| !ids.contains(block)));
    drop((copy, other));
    assert_eq!(pool.num_available(), 4);
}

#[test]
fn a_published_prefix_is_found_up_to_the_last_token() {
    let pool = pool(16, 4);
    let tokens: Vec<u32> = (0..12).collect();
    let first = with_tokens(&pool, &tokens);
    // The last token is computed in any case, so the third block is not shared by an equal prompt.
    let same = SequenceBlocks::with_prefix(&pool, &tokens);
    assert_eq!((same.len(), same.blocks()), (8, &first.blocks()[..2]));
    let longer = SequenceBlocks::with_prefix(&pool, &[tokens.as_slice(), &[12]].concat());
    assert_eq!(longer.blocks(), first.blocks());
    // Equal tokens after another beginning are other content.
    let shifted = SequenceBlocks::with_prefix(&pool, &[4, 5, 6, 7, 8, 9]);
    assert_eq!(shifted.len(), 0);
    assert_eq!(SequenceBlocks::with_prefix(&pool, &[]).len(), 0);
}

#[test]
fn nothing_is_found_before_it_is_published() {
    let pool = pool(16, 4);
    let tokens: Vec<u32> = (0..9).collect();
    let mut first = SequenceBlocks::new(&pool);
    first.append_tokens(&tokens).unwrap();
    assert_eq!(SequenceBlocks::with_prefix(&pool, &tokens).len(), 0);
    first.publish();
    assert_eq!(SequenceBlocks::with_prefix(&pool, &tokens).len(), 8);
}

#[test]
fn tokens_after_unknown_ones_are_not_published() {
    let pool = pool(16, 4);
    let mut first = SequenceBlocks::new(&pool);
    first.append_tokens(&[0, 1, 2, 3]).unwrap();
    first.append(1).unwrap();
    first.append_tokens(&[5, 6, 7]).unwrap();
    first.publish();
    let found = SequenceBlocks::with_prefix(&pool, &[0, 1, 2, 3, 5, 6, 7, 8, 9]);
    assert_eq!(found.len(), 4);
}

#[test]
fn a_prefix_outlives_its_sequence_and_the_least_recently_used_goes_first() {
    let pool = pool(3, 2);
    let [a, b, c] = [[1, 1, 0], [2, 2, 0], [3, 3, 0]];
    for tokens in [a, b, c] {
        let mut sequence = with_tokens(&pool, &tokens[..2]);
        sequence.publish();
    }
    assert_eq!((pool.num_available(), pool.num_evictable()), (3, 3));
    // Using the oldest makes it the newest.
    assert_eq!(SequenceBlocks::with_prefix(&pool, &a).len(), 2);
    let taken = [pool.allocate().unwrap(), pool.allocate().unwrap()];
    let found = |tokens: &[u32]| SequenceBlocks::with_prefix(&pool, tokens).len();
    assert_eq!([found(&a), found(&b), found(&c)], [2, 0, 0]);
    drop(taken);
    pool.lock().check();
}

#[test]
fn the_end_of_a_prefix_is_evicted_before_its_beginning() {
    let pool = pool(3, 2);
    let tokens = [1, 2, 3, 4, 5, 6, 0];
    drop(with_tokens(&pool, &tokens[..6]));
    let found = || SequenceBlocks::with_prefix(&pool, &tokens).len();
    assert_eq!(found(), 6);
    let one = pool.allocate().unwrap();
    assert_eq!(found(), 4);
    let two = pool.allocate().unwrap();
    assert_eq!(found(), 2);
    drop((one, two));
}

#[test]
fn a_published_block_that_is_cut_back_and_written_again_is_no_longer_found() {
    let pool = pool(4, 4);
    let tokens = [1, 2, 3, 4, 5];
    let mut sequence = with_tokens(&pool, &tokens[..4]);
    sequence.truncate(2).unwrap();
    assert_eq!(
        SequenceBlocks::with_prefix(&pool, &tokens).len(),
        4,
        "still intact"
    );
    sequence.append_tokens(&[9, 9]).unwrap();
    assert_eq!(SequenceBlocks::with_prefix(&pool, &tokens).len(), 0);
    sequence.publish();
    assert_eq!(
        SequenceBlocks::with_prefix(&pool, &[1, 2, 9, 9, 0]).len(),
        4
    );
}

#[test]
fn slots_and_rows_follow_the_blocks() {
    let pool = pool(8, 4);
    let _spacer = pool.allocate().unwrap();
    let mut sequence = SequenceBlocks::new(&pool);
    sequence.append(6).unwrap();
    let [a, b] = sequence.blocks() else {
        panic!("two blocks")
    };
    let (a, b) = (i64::from(*a), i64::from(*b));
    assert_eq!(
        sequence.slots(2..6).unwrap(),
        [a * 4 + 2, a * 4 + 3, b * 4, b * 4 + 1]
    );
    let mut row = [7; 4];
    sequence.write_row(&mut row).unwrap();
    assert_eq!(row, [a as i32, b as i32, -1, -1]);
}

#[test]
fn references_are_counted() {
    let pool = pool(2, 4);
    assert_eq!(
        (pool.ref_count(0), pool.ref_count(2), pool.ref_count(-1)),
        (Some(0), None, None)
    );
    let block = pool.allocate().unwrap();
    let again = block.clone();
    assert_eq!(pool.ref_count(block.block()), Some(2));
    drop(block);
    assert_eq!(pool.ref_count(again.block()), Some(1));
    drop(again);
    assert_eq!(pool.num_available(), 2);
    assert!(pool.ref_count(0) == Some(0) && pool.ref_count(1) == Some(0));
}
