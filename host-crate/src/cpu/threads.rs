//! Spreads items over threads.

/// K and V bytes below which waking other threads costs more than it gains: one thread takes about
/// 70 µs for half of this, and a thread 50 µs to wake.
#[cfg(feature = "rayon")]
const MIN_PARALLEL_BYTES: usize = 1 << 20;

/// Threads that a call on `bytes` of keys and values uses.
pub(crate) fn count(bytes: usize) -> usize {
    #[cfg(feature = "rayon")]
    if bytes >= MIN_PARALLEL_BYTES {
        return rayon::current_num_threads();
    }
    let _ = bytes;
    1
}

/// Calls `run` for 0..count on up to `threads` threads, in no order; each thread keeps one `init()`.
pub(crate) fn for_each<S>(
    threads: usize,
    count: usize,
    init: impl Fn() -> S + Sync,
    run: impl Fn(&mut S, usize) + Sync,
) {
    #[cfg(feature = "rayon")]
    if threads > 1 && count > 1 {
        use std::sync::atomic::{AtomicUsize, Ordering};

        let next = AtomicUsize::new(0);
        let work = || {
            let mut state = init();
            loop {
                // Items publish nothing to each other; the scope's end orders them before the rest.
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return;
                }
                run(&mut state, index);
            }
        };
        // The caller starts at once; others join as they wake.
        rayon::in_place_scope(|scope| {
            for _ in 1..threads.min(count) {
                scope.spawn(|_| work());
            }
            work();
        });
        return;
    }
    let _ = threads;
    let mut state = init();
    for index in 0..count {
        run(&mut state, index);
    }
}
